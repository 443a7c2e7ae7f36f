package managed_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/escape"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// The create of another process, which has lost its leadership, runs.
func TestFinalizer_CreateOfAnotherProcess(t *testing.T) {
	recorded := func(change func(r *creation.Record)) kit.BucketModifier {
		return func(b *v1alpha1.Bucket) {
			b.SetUID("uid-1") // The one that it will get.
			meta.SetExternalCreatePending(b, time.Now())
			r := creation.NewRecord(b, creation.Create, "another", "token-1", time.Now(), time.Hour)
			change(r)
			kit.WithAnnotation(creation.AnnotationKeyRecord, r.Text())(b)
			b.SetUID("")
		}
	}
	announced := func(b *v1alpha1.Bucket) { meta.SetExternalCreatePending(b, time.Now()) }
	kept := kit.WithPolicies(xpv2.ManagementActionObserve, xpv2.ManagementActionCreate)
	orphaned := kit.WithAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-1")

	for name, tc := range map[string]struct {
		reason  string
		create  kit.BucketModifier
		request kit.BucketModifier
		async   bool
		options []managed.ReconcilerOption
		busy    time.Duration
		message string
	}{
		"Kept": {
			reason: "The finalizer should stay although the external resource is kept: its name would be lost.",
			create: recorded(func(*creation.Record) {}), request: kept, async: true,
			busy: 61 * time.Minute, message: "may run until 2000-01-01T01:01:00Z: it is recorded as running",
		},
		"KeptWithoutTracker": {
			reason: "The same for a reconciler that knows no operations.",
			create: recorded(func(*creation.Record) {}), request: kept,
			busy: 61 * time.Minute, message: "may run until 2000-01-01T01:01:00Z: it is recorded as running",
		},
		"KeptAnnounced": {
			reason: "The same for a create without a record.",
			create: announced, request: kept,
			busy: 5 * time.Minute, message: "may run until 2000-01-01T00:05:00Z: it was announced",
		},
		"KeptAnnouncedForLonger": {
			reason: "A reconcile that may take longer adds to that.",
			create: announced, request: kept, options: []managed.ReconcilerOption{
				managed.WithTimeout(10 * time.Minute),
			},
			busy: 11 * time.Minute, message: "may run until 2000-01-01T00:11:00Z: it was announced",
		},
		"Orphaned": {
			reason: "Force orphan should wait in the same way.",
			create: recorded(func(*creation.Record) {}), request: orphaned, async: true,
			options: []managed.ReconcilerOption{escape.WithForceOrphan()},
			busy:    61 * time.Minute, message: "may run until 2000-01-01T01:01:00Z: it is recorded as running",
		},
		"OrphanedAnnounced": {
			reason: "The same for a create without a record.",
			create: announced, request: orphaned, options: []managed.ReconcilerOption{escape.WithForceOrphan()},
			busy: 5 * time.Minute, message: "may run until 2000-01-01T00:05:00Z: it was announced",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := testkit.NewAPI(kit.NewBucket(kit.WithFinalizers(managed.FinalizerName), tc.create, tc.request))
				absent := kit.WithClient(managed.ExternalClientFns{ObserveFn: kit.ObserveAbsent})
				options := append([]managed.ReconcilerOption{absent}, tc.options...)
				if tc.async {
					options = append(options, asyncstate.With(asyncstate.NewTracker()))
				}
				r := kit.NewBucketReconciler(api, options...)
				kit.DeleteBucket(t, api, "b")
				kit.TryReconcile(r, 2)
				time.Sleep(tc.busy - time.Second)
				kit.TryReconcile(r, 2)
				b := kit.GetBucket(t, api)
				kit.ExpectEqual(t, tc.reason, "finalizers", []string{managed.FinalizerName}, b.GetFinalizers())
				if message := deletion.ConditionOf(b).Message; !strings.Contains(message, tc.message) {
					t.Errorf("\n%s\nwant a condition with %q, got %q", tc.reason, tc.message, message)
				}

				time.Sleep(2 * time.Second)
				kit.TryReconcile(r, 3)
				kit.CollectGarbage(t, api)
				kit.ExpectEqual(t, "It should be removed when the create has had its time.", "name", "",
					kit.GetBucket(t, api).GetName())
			})
		})
	}
}
