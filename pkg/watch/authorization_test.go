package watch_test

import (
	"context"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	authv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
	"github.com/crossplane-graft/graft/pkg/watch"
)

func TestIsAuthorizedFor(t *testing.T) {
	k := watchtest.NewKind("Widget")
	boom := errors.New("boom")
	cases := map[string]struct {
		reason string
		kind   watchtest.Kind
		allow  map[string]bool
		err    error
		want   bool

		// Of the error, if there is to be one.
		denied  []string
		isErr   bool
		reviews int
	}{
		"Everything": {reason: "Who may do anything is asked once.", kind: k, allow: map[string]bool{"*": true}, want: true, reviews: 1},
		"EachVerb": {
			reason: "Who may do each of what is needed may.", kind: k,
			allow: map[string]bool{"get": true, "list": true, "watch": true, "create": true, "update": true, "patch": true, "delete": true},
			want:  true, reviews: 8,
		},
		"SomeVerbs": {
			reason: "What is missing is said, in one error.", kind: k,
			allow:  map[string]bool{"get": true, "list": true, "watch": true, "create": true, "update": true},
			denied: []string{"patch", "delete"}, isErr: true, reviews: 8,
		},
		"CannotReview": {reason: "An error of a review is returned.", kind: k, err: boom, isErr: true, reviews: 1},
		"NoSuchKind":   {reason: "A kind that isn't there can't be reviewed.", kind: watchtest.NewKind("Gadget"), isErr: true},
	}
	for name, tc := range cases {
		inBubble(t, name, func(t *testing.T) {
			api := watchtest.NewAPI(k)
			reviews := 0
			c := &test.MockClient{MockCreate: func(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
				review, ok := obj.(*authv1.SelfSubjectAccessReview)
				if !ok {
					t.Fatalf("%T was created", obj)
				}
				reviews++
				a := review.Spec.ResourceAttributes
				review.Status.Allowed = tc.allow[a.Verb]
				if a.Group != k.GVK.Group || a.Resource != k.Plural || a.Namespace != "ns" {
					t.Errorf("\n%s\nreview of %+v", tc.reason, a)
				}
				return tc.err
			}}
			mgr := watchtest.NewManager(api.Config(), scheme())
			ca, err := watch.NewCache(api.Config(), cache.Options{Scheme: scheme()})
			if err != nil {
				t.Fatal(err)
			}
			e := watch.New(mgr, ca, nil, c, watch.WithNamespace("system"), watch.WithServiceAccount("me"))
			got, err := e.IsAuthorizedFor(t.Context(), tc.kind.GVK, "ns")
			if got != tc.want || (err != nil) != tc.isErr || tc.err != nil && !errors.Is(err, tc.err) || reviews != tc.reviews {
				t.Errorf("\n%s\nIsAuthorizedFor(...): %t, %v after %d reviews", tc.reason, got, err, reviews)
			}
			if len(tc.denied) == 0 {
				return
			}
			want := watch.SubjectAccessReviewError{
				User:      "system:serviceaccount:system:me",
				Resource:  schema.GroupVersionResource{Group: k.GVK.Group, Version: k.GVK.Version, Resource: k.Plural},
				Namespace: "ns", DeniedVerbs: tc.denied,
			}
			var denied watch.SubjectAccessReviewError
			if !errors.As(err, &denied) || cmp.Diff(want, denied) != "" {
				t.Errorf("\n%s\nerror: -want, +got:\n%s", tc.reason, cmp.Diff(want, denied))
			}
		})
	}
}
