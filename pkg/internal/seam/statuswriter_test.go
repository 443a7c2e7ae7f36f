package seam

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

const typeOurs xpv2.ConditionType = "Ours"

func invalid() error {
	return kerrors.NewInvalid(schema.GroupKind{Kind: "Bucket"}, "b", field.ErrorList{
		field.NotSupported(field.NewPath("status", "conditions"), "Ours", []string{"Ready"}),
	})
}

// denied is the answer of a webhook that answers with a code.
func denied(code int32) error {
	return &kerrors.StatusError{
		ErrStatus: metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    code,
			Reason:  "no such condition",
			Message: "admission webhook denied the request",
		},
	}
}

func conditionOf(t xpv2.ConditionType, message string) xpv2.Condition {
	return xpv2.Condition{Type: t, Status: corev1.ConditionTrue, Reason: "R", Message: message}
}

// typesOf the conditions that the API server has.
func typesOf(t *testing.T, a *testkit.API) []xpv2.ConditionType {
	t.Helper()
	var out []xpv2.ConditionType
	for _, c := range stored(t, a).Status.Conditions {
		out = append(out, c.Type)
	}
	return out
}

func TestRefusedStatusWrite(t *testing.T) {
	// hasOurs refuses an object that has our condition.
	hasOurs := func(err error) func(b *v1alpha1.Bucket) error {
		return func(b *v1alpha1.Bucket) error {
			if slices.ContainsFunc(b.Status.Conditions, func(c xpv2.Condition) bool { return c.Type == typeOurs }) {
				return err
			}
			return nil
		}
	}
	maxItems := func(n int) func(b *v1alpha1.Bucket) error {
		return func(b *v1alpha1.Bucket) error {
			if len(b.Status.Conditions) > n {
				return invalid()
			}
			return nil
		}
	}
	always := func(err error) func(b *v1alpha1.Bucket) error {
		return func(*v1alpha1.Bucket) error { return err }
	}

	type params struct {
		reason string

		// stored are the conditions that the API server has.
		stored []xpv2.Condition

		// admits is the schema of the kind, and its webhooks.
		admits func(b *v1alpha1.Bucket) error

		// inner are the conditions that the inner reconciler sets.
		inner []xpv2.Condition
	}
	type want struct {
		err     metav1.StatusReason
		types   []xpv2.ConditionType
		ready   string
		ours    string
		writes  int
		refused int
		again   bool // It is reconciled again.
	}
	inner := []xpv2.Condition{conditionOf(xpv2.TypeReady, "inner"), conditionOf(xpv2.TypeSynced, "inner")}
	both := []xpv2.ConditionType{xpv2.TypeReady, xpv2.TypeSynced}
	cases := map[string]struct {
		params
		want
	}{
		"Accepted": {
			params: params{
				reason: "A status that the API server accepts is written once, with the conditions of the patches.",
				admits: always(nil),
				inner:  inner,
			},
			want: want{
				types:  []xpv2.ConditionType{xpv2.TypeReady, xpv2.TypeSynced, typeOurs},
				ready:  "patch",
				ours:   "new",
				writes: 1,
			},
		},
		"Enum": {
			params: params{
				reason: "A schema that lacks the type of a patch's condition must not refuse the inner reconciler's status.",
				admits: hasOurs(invalid()),
				inner:  inner,
			},
			want: want{types: both, ready: "inner", writes: 2, refused: 1},
		},
		"MaxItems": {
			params: params{
				reason: "A stored condition of a patch should make room for the conditions of the inner reconciler.",
				stored: []xpv2.Condition{conditionOf(xpv2.TypeReady, "old"), conditionOf(typeOurs, "old")},
				admits: maxItems(2), inner: inner,
			},
			want: want{types: both, ready: "inner", writes: 3, refused: 1},
		},
		"MaxLength": {
			params: params{
				reason: "A patch's condition that is stored stays if only its new message is refused.",
				stored: []xpv2.Condition{conditionOf(typeOurs, "old")}, inner: inner,
				admits: func(b *v1alpha1.Bucket) error {
					if b.GetCondition(typeOurs).Message == "new" {
						return invalid()
					}
					return nil
				},
			},
			want: want{
				types:   []xpv2.ConditionType{typeOurs, xpv2.TypeReady, xpv2.TypeSynced},
				ready:   "inner",
				ours:    "old",
				writes:  2,
				refused: 1,
			},
		},
		"MessageOfReady": {
			params: params{
				reason: "A refused change of the inner reconciler's condition should not be written.", inner: inner,
				admits: func(b *v1alpha1.Bucket) error {
					if b.GetCondition(xpv2.TypeReady).Message == "patch" {
						return invalid()
					}
					return nil
				},
			},
			want: want{types: both, ready: "inner", writes: 2, refused: 1},
		},
		"Forbidden": {
			params: params{
				reason: "A webhook that denies a condition of a patch must not refuse the inner reconciler's status.",
				admits: hasOurs(kerrors.NewForbidden(schema.GroupResource{}, "b", errors.New("denied"))),
				inner:  inner,
			},
			want: want{types: both, ready: "inner", writes: 2, refused: 1},
		},
		"BadRequest": {
			params: params{
				reason: "A webhook may answer that the request is bad.",
				admits: hasOurs(kerrors.NewBadRequest("denied")),
				inner:  inner,
			},
			want: want{types: both, ready: "inner", writes: 2, refused: 1},
		},
		"TooLarge": {
			params: params{
				reason: "The patch's conditions may make the object too large.",
				admits: hasOurs(kerrors.NewRequestEntityTooLargeError("too large")),
				inner:  inner,
			},
			want: want{types: both, ready: "inner", writes: 2, refused: 1},
		},
		"CodeOfConflict": {
			params: params{
				reason: "A webhook may answer with the code of a conflict, as Crossplane's does.",
				admits: hasOurs(denied(http.StatusConflict)),
				inner:  inner,
			},
			want: want{types: both, ready: "inner", writes: 2, refused: 1},
		},
		"OddCode": {
			params: params{
				reason: "A webhook may answer with any code.",
				admits: hasOurs(denied(http.StatusTeapot)),
				inner:  inner,
			},
			want: want{types: both, ready: "inner", writes: 2, refused: 1},
		},
		"InternalError": {
			params: params{
				reason: "A webhook may fail because of a condition that it doesn't know.",
				admits: hasOurs(kerrors.NewInternalError(errors.New("failed calling webhook"))),
				inner:  inner,
			},
			want: want{types: both, ready: "inner", writes: 2, refused: 1},
		},
		"AllRefused": {
			params: params{
				reason: "A status that is refused without the conditions of the patches is the inner reconciler's to report.",
				admits: always(invalid()),
				inner:  inner,
			},
			want: want{err: metav1.StatusReasonInvalid, writes: 2},
		},
		"Conflict": {
			params: params{
				reason: "After a conflict the object has to be read.",
				admits: always(kerrors.NewConflict(schema.GroupResource{}, "b", errors.New("changed"))),
				inner:  inner,
			},
			want: want{err: metav1.StatusReasonConflict, writes: 1, again: true},
		},
		"Throttled": {
			params: params{
				reason: "An API server that is in trouble gets no second request.",
				admits: always(kerrors.NewTooManyRequests("later", 1)),
				inner:  inner,
			},
			want: want{err: metav1.StatusReasonTooManyRequests, writes: 1},
		},
		"TimedOut": {
			params: params{
				reason: "A request that timed out may have been served.",
				admits: always(kerrors.NewServerTimeout(schema.GroupResource{}, "update", 1)),
				inner:  inner,
			},
			want: want{err: metav1.StatusReasonServerTimeout, writes: 1},
		},
	}

	writes := map[string]func(ctx context.Context, c client.Client, o client.Object, read client.Object) error{
		"Update": func(ctx context.Context, c client.Client, o, _ client.Object) error {
			return c.Status().Update(ctx, o)
		},
		"UpdateWithOptions": func(ctx context.Context, c client.Client, o, _ client.Object) error {
			return c.Status().Update(ctx, o, client.FieldOwner("me"))
		},
		"SubResource": func(ctx context.Context, c client.Client, o, _ client.Object) error {
			return c.SubResource("status").Update(ctx, o)
		},
		"Patch": func(ctx context.Context, c client.Client, o, read client.Object) error {
			return c.Status().Patch(ctx, o, client.MergeFrom(read))
		},
	}
	forms := map[string]func() client.Object{
		"Typed":        func() client.Object { return &v1alpha1.Bucket{} },
		"Unstructured": func() client.Object { return &composed.Unstructured{Unstructured: *asUnstructured()} },
	}

	for name, tc := range cases {
		for writeName, write := range writes {
			for formName, form := range forms {
				t.Run(name+"/"+writeName+"/"+formName, func(t *testing.T) {
					b := newBucket()
					b.Status.Conditions = slices.Clone(tc.stored)
					a := testkit.NewAPI(b)
					a.Before = func(_ context.Context, r testkit.Request) error {
						if r.Verb != testkit.StatusUpdate && r.Verb != testkit.StatusPatch {
							return nil
						}
						return tc.admits(asBucket(t, r.Object))
					}

					refused := 0
					kind := NewKind(testkit.BucketKind(), testkit.Scheme())
					p := Patch{
						Conditions: []xpv2.ConditionType{typeOurs},
						Status: func(_ context.Context, s *Session, o client.Object) {
							s.SetConditions(o, conditionOf(xpv2.TypeReady, "patch"), conditionOf(typeOurs, "new"))
						},
						Refused: func(*Session, client.Object, error) { refused++ },
					}
					var got error
					r := over(a.Client(), a, Options{}, func(ctx context.Context, c client.Client) error {
						o := form()
						read(ctx, t, c, o)
						was, _ := o.DeepCopyObject().(client.Object)
						conditions, _ := kind.Conditioned(o)
						conditions.SetConditions(tc.inner...)
						got = write(ctx, c, o, was)
						return nil
					}, p)
					result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key()})
					must(t, "Reconcile", err)

					is := stored(t, a)
					if diff := cmp.Diff(tc.want,
						want{
							err: kerrors.ReasonForError(got), types: typesOf(t, a),
							ready: is.GetCondition(xpv2.TypeReady).Message, ours: is.GetCondition(typeOurs).Message,
							writes: a.Writes(), refused: refused, again: !result.IsZero(),
						},
						cmp.AllowUnexported(want{}),
					); diff != "" {
						t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
					}

					must(t, "second Reconcile", run(t, r))
					if diff := cmp.Diff(is.GetResourceVersion(), stored(t, a).GetResourceVersion()); diff != "" {
						t.Errorf(
							"\n%s\nThe next reconcile changes nothing: -want version, +got version:\n%s", tc.reason,
							diff,
						)
					}
				})
			}
		}
	}
}

// Without the conditions of the patches there may be nothing to write.
func TestRefusedStatusWrite_NothingLeft(t *testing.T) {
	a := testkit.NewAPI(newBucket())
	a.Before = func(_ context.Context, r testkit.Request) error {
		if r.Verb == testkit.StatusUpdate {
			return invalid()
		}
		return nil
	}
	p := Patch{
		Conditions: []xpv2.ConditionType{typeOurs},
		Status: func(_ context.Context, s *Session, o client.Object) {
			s.SetConditions(o, conditionOf(typeOurs, "new"))
		},
	}
	must(t, "Reconcile", run(t, over(a.Client(), a, Options{}, func(ctx context.Context, c client.Client) error {
		b := newBucket()
		read(ctx, t, c, b)
		return c.Status().Update(ctx, b)
	}, p)))
	wants(
		t, "The inner reconciler's status is unchanged, and is not written.", "status updates", 1,
		a.Count(testkit.StatusUpdate),
	)
}

// An inner reconciler may use the client from several goroutines, also after it returned.
func TestConcurrentRequests(t *testing.T) {
	b, other := newBucket(), newBucket()
	other.SetName("other")
	a := testkit.NewAPI(b, other)
	p := Patch{
		Conditions: []xpv2.ConditionType{typeOurs},
		Open:       func(context.Context, *Session, client.Object) error { return nil },
		Status: func(_ context.Context, s *Session, o client.Object) {
			s.SetConditions(o, conditionOf(typeOurs, s.Base().GetResourceVersion()))
		},
		Close: func(_ context.Context, s *Session) error { s.Requeue(WithBackoff()); return nil },
	}
	requests := []func(ctx context.Context, c client.Client) error{
		func(ctx context.Context, c client.Client) error { return c.Get(ctx, key(), newBucket()) },
		func(ctx context.Context, c client.Client) error { return c.Get(ctx, key(), asUnstructured()) },
		func(ctx context.Context, c client.Client) error {
			return c.Get(ctx, types.NamespacedName{Namespace: "default", Name: "other"}, newBucket())
		},
		func(ctx context.Context, c client.Client) error {
			o := newBucket()
			if err := c.Get(ctx, key(), o); err != nil {
				return err
			}
			o.SetLabels(map[string]string{"version": o.GetResourceVersion()})
			return c.Update(ctx, o)
		},
		func(ctx context.Context, c client.Client) error {
			o := newBucket()
			if err := c.Get(ctx, key(), o); err != nil {
				return err
			}
			o.Status.AtProvider.ID = o.GetResourceVersion()
			return c.Status().Update(ctx, o)
		},
		func(ctx context.Context, c client.Client) error {
			o := newBucket()
			if err := c.Get(ctx, key(), o); err != nil {
				return err
			}
			return c.Status().Patch(ctx, o, statusPatch())
		},
		func(ctx context.Context, c client.Client) error {
			o := newBucket()
			if err := c.Get(ctx, key(), o); err != nil {
				return err
			}
			return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
		},
		func(ctx context.Context, c client.Client) error {
			return c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(asUnstructured()))
		},
		func(ctx context.Context, c client.Client) error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(asUnstructured()))
		},
	}
	inFlight := sync.WaitGroup{}
	must(
		t, "Reconcile",
		run(t, over(applying{a.Client()}, a, Options{}, func(ctx context.Context, c client.Client) error {
			read(ctx, t, c, newBucket())
			for _, request := range slices.Concat(requests, requests, requests) {
				inFlight.Go(func() {
					if err := request(ctx, c); err != nil && !kerrors.IsConflict(err) {
						t.Errorf("A request fails with a conflict only: %v", err)
					}
				})
			}
			return nil
		}, p)),
	)
	inFlight.Wait()
}

// A request for the reconcile's own object that hangs holds up no other object, and its own
// for no longer than their contexts.
func TestConcurrentRequests_Hanging(t *testing.T) {
	other := newBucket()
	other.SetName("other")
	a, hangs, goOn := testkit.NewAPI(newBucket(), other), make(chan struct{}), make(chan struct{})
	a.Before = func(_ context.Context, r testkit.Request) error {
		if r.Verb == testkit.Update {
			close(hangs)
			<-goOn
		}
		return nil
	}
	must(t, "Reconcile", run(t, over(a.Client(), a, Options{}, func(ctx context.Context, c client.Client) error {
		b := newBucket()
		read(ctx, t, c, b)
		written := make(chan error, 1)
		go func() { written <- c.Update(ctx, b) }()
		<-hangs
		must(t, "Get of another object", c.Get(ctx, types.NamespacedName{
			Namespace: "default",
			Name:      "other",
		}, newBucket()))
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		wants(
			t, "A read of the object that is being written ends with its context.", "deadline exceeded", true,
			errors.Is(c.Get(short, key(), newBucket()), context.DeadlineExceeded),
		)
		close(goOn)
		return <-written
	})))
}

func asBucket(t *testing.T, o client.Object) *v1alpha1.Bucket {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	must(t, "ToUnstructured", err)
	b := newBucket()
	must(t, "FromUnstructured", runtime.DefaultUnstructuredConverter.FromUnstructured(content, b))
	return b
}
