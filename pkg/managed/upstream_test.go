package managed_test

import (
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// TestPollInterval proves that a create without an outcome is polled as often as upstream polls.
func TestPollInterval(t *testing.T) {
	cases := map[string]struct {
		reason  string
		options []managed.ReconcilerOption
		want    time.Duration
	}{
		"Annotation": {reason: "The annotation should count.", want: 7 * time.Hour},
		"Minimum": {
			reason:  "The minimum should count.",
			options: []managed.ReconcilerOption{managed.WithMinPollInterval(9 * time.Hour)},
			want:    9 * time.Hour,
		},
		"Hook": {
			reason: "The hook should count.",
			options: []managed.ReconcilerOption{managed.WithPollIntervalHook(
				func(_ resource.Managed, d time.Duration) time.Duration { return d + time.Minute },
			)},
			want: 7*time.Hour + time.Minute,
		},
		"NoPolls": {
			reason: "Without polls it should be a minute.",
			options: []managed.ReconcilerOption{managed.WithPollIntervalHook(
				func(resource.Managed, time.Duration) time.Duration { return 0 },
			)},
			want: time.Minute,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := testkit.NewAPI(kit.NewBucket(
				kit.WithAnnotation(meta.AnnotationKeyExternalCreatePending, "2026-01-01T00:00:00Z"),
				kit.WithAnnotation(meta.AnnotationKeyPollInterval, "7h"),
			))
			r := kit.NewBucketReconciler(api, append(tc.options, (&kit.CountingClient{}).Connect())...)
			var got time.Duration
			for range 3 {
				got = kit.ReconcileOnce(t, r, "b").RequeueAfter
			}
			kit.ExpectEqual(t, tc.reason, "wait", tc.want, got)
		})
	}
}
