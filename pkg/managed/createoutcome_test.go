package managed

import (
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

func TestCreateWithoutOutcome_Polled(t *testing.T) {
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pending := withAnnotation(meta.AnnotationKeyExternalCreatePending, started.Format(time.RFC3339))

	cases := map[string]struct {
		reason string
		mods   []bucketModifier
		want   time.Duration
	}{
		"Announced": {
			reason: "A process that reads the announcement of another process should poll: it may miss the outcome, which causes no event.",
			mods:   []bucketModifier{pending},
			want:   10 * time.Minute,
		},
		"Deleted": {
			reason: "A deletion that waits for the outcome of a create should be polled, too.",
			mods:   []bucketModifier{pending, withDeletionTimestamp},
			want:   10 * time.Minute,
		},
		"Paused": {
			reason: "A paused managed resource should not be polled.",
			mods:   []bucketModifier{pending, withPausedAnnotation},
		},
		"PausedByPolicies": {
			reason: "A managed resource without management policies is paused, too.",
			mods:   []bucketModifier{pending, withPolicies()},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ext := &externalResource{}
			api := testkit.NewAPI(newBucket(append(tc.mods, withFinalizers(FinalizerName))...))
			r := newBucketReconciler(api, withClient(ext.client()), WithPollInterval(10*time.Minute))
			result, err := r.Reconcile(t.Context(), request())
			must(t, err)
			expectEqual(t, tc.reason, "RequeueAfter", tc.want, result.RequeueAfter)
		})
	}
}
