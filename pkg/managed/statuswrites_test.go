package managed

import (
	"fmt"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

func TestStatusWrites(t *testing.T) {
	const reconciles = 100

	facts := func(of func(n int) map[string]string) func(int, *v1alpha1.Bucket) error {
		return func(n int, b *v1alpha1.Bucket) error {
			b.Status.AtProvider.Facts = of(n)
			return nil
		}
	}

	cases := map[string]struct {
		reason string
		mods   []func(b *v1alpha1.Bucket)
		opts   []ReconcilerOption

		// observe is done by the Observe of the n-th reconcile, and between before
		// that.
		observe func(n int, b *v1alpha1.Bucket) error
		between func(n int, b *v1alpha1.Bucket)
		want    int
	}{
		"Unchanged":       {reason: "A status that does not change is not written."},
		"UnchangedWanted": {reason: "It is if that is wanted.", opts: []ReconcilerOption{WithUnchangedStatusWrites()}, want: reconciles},
		"EmptyLists": {reason: "An empty map is no map.", observe: facts(func(n int) map[string]string {
			if n%2 == 0 {
				return map[string]string{}
			}

			return nil
		})},
		"RawNewline": {reason: "Raw JSON is compared as it is stored, without the newline of an encoder.", observe: func(_ int, b *v1alpha1.Bucket) error {
			b.Status.AtProvider.Manifest.Raw = []byte("{\"b\": 1,\"a\":[1.0]}\n")
			return nil
		}},
		"Milliseconds": {reason: "A time is compared as it is stored, in seconds.", observe: func(n int, b *v1alpha1.Bucket) error {
			b.Status.AtProvider.Created = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 1000*n, time.UTC)}
			return nil
		}},
		"Changing":       {reason: "A status that changes each time is written each time.", observe: facts(func(n int) map[string]string { return map[string]string{"n": fmt.Sprint(n)} }), want: reconciles},
		"Failing":        {reason: "The same failure each time is written once.", observe: func(int, *v1alpha1.Bucket) error { return errors.New("boom") }},
		"Paused":         {reason: "What is paused says so once.", mods: []func(b *v1alpha1.Bucket){paused}},
		"PausedByPolicy": {reason: "What is paused by policy says so once.", mods: []func(b *v1alpha1.Bucket){policies()}},
		"ReconcileRequested": {
			reason: "A request to reconcile is acknowledged, though nothing else changed.",
			between: func(n int, b *v1alpha1.Bucket) {
				if n%50 == 0 {
					annotated(meta.AnnotationKeyReconcileRequestedAt, fmt.Sprint("token-", n))(b)
				}
			},
			want: 2,
		},
		"ForeignAnnotations": {reason: "That others write what is not status is no reason to write status.", between: func(n int, b *v1alpha1.Bucket) { annotated("example.org/n", fmt.Sprint(n))(b) }},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, n := testkit.NewAPI(bucket(append(tc.mods, named("id-1"))...)), 0
			x := (&outside{there: true}).on("observe", func(b *v1alpha1.Bucket) error {
				if tc.observe == nil {
					return nil
				}

				return tc.observe(n, b)
			})
			r := newBucketReconciler(a, append(tc.opts, connects(x.client()))...)

			repeat(t, r, 3)
			a.Forget()

			for n = 1; n <= reconciles; n++ {
				if tc.between != nil {
					edit(t, a, "b", func(b *v1alpha1.Bucket) { tc.between(n, b) })
				}

				run(t, r, "b")
			}

			wants(t, tc.reason, "status updates, writes in 100 reconciles", []int{tc.want, tc.want}, []int{a.Count(testkit.StatusUpdate), a.Writes()})

			b := get(t, a)
			wants(t, tc.reason, "last handled request", b.GetAnnotations()[meta.AnnotationKeyReconcileRequestedAt], b.GetLastHandledReconcileAt())
		})
	}
}
