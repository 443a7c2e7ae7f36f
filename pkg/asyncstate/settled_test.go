package asyncstate_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A record of a create that upstream's annotations say has ended stops nothing.
func TestObserve_CreateSettledElsewhere(t *testing.T) {
	theirs := func(w *world, b *v1alpha1.Bucket) {
		w.cloud.add("theirs", "")
		meta.SetExternalName(b, "theirs")
	}

	cases := map[string]struct {
		reason string
		plain  bool

		// refused is set if a first attempt is refused in the second in which the
		// second attempt is announced.
		refused bool

		// before the attempt that is interrupted, and after it.
		before, then func(w *world, b *v1alpha1.Bucket)

		want    xpv2.ConditionReason
		creates int
		name    string
	}{
		"Untouched": {reason: "The outcome is unknown.", then: func(*world, *v1alpha1.Bucket) {}, want: asyncstate.ReasonResultUnknown, creates: 1},
		"UntouchedUnderUpstream": {
			reason: "Upstream says that a create has succeeded as soon as it has begun.",
			plain:  true, then: func(*world, *v1alpha1.Bucket) {}, want: asyncstate.ReasonResultUnknown, creates: 1,
		},
		"PendingRemoved": {
			reason: "Upstream's message asks for this annotation to be removed if it is safe to go on.",
			then:   func(_ *world, b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending) }, want: asyncstate.ReasonFinished, creates: 2, name: "id-0001",
		},
		"PendingRemovedAndNamed": {
			reason: "A person has found the external resource.",
			then: func(w *world, b *v1alpha1.Bucket) {
				theirs(w, b)
				meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending)
			},
			want:    asyncstate.ReasonFinished,
			creates: 1,
			name:    "theirs",
		},
		"CreatedByUpstream": {
			reason: "The provider was rolled back to upstream, which created the external resource, and then updated.",
			then: func(w *world, b *v1alpha1.Bucket) {
				theirs(w, b)
				meta.SetExternalCreatePending(b, time.Now())
				meta.SetExternalCreateSucceeded(b, time.Now())
			},
			want:    asyncstate.ReasonFinished,
			creates: 1,
			name:    "theirs",
		},
		"CreatedByUpstreamWithAClockBehind": {
			reason: "As above, on a machine whose clock is an hour behind.",
			then: func(w *world, b *v1alpha1.Bucket) {
				theirs(w, b)
				meta.SetExternalCreatePending(b, time.Now().Add(-time.Hour))
				meta.SetExternalCreateSucceeded(b, time.Now().Add(-time.Hour))
			},
			want:    asyncstate.ReasonFinished,
			creates: 1,
			name:    "theirs",
		},
		"RefusedUnderUpstream": {
			reason: "The provider was rolled back to upstream, whose create failed, and then updated.",
			then: func(_ *world, b *v1alpha1.Bucket) {
				meta.SetExternalCreatePending(b, time.Now())
				meta.SetExternalCreateFailed(b, time.Now())
			},
			want:    asyncstate.ReasonFinished,
			creates: 2,
			name:    "id-0001",
		},
		"SucceededByHand": {
			reason: "A person says that the create has succeeded, and under which name.",
			then: func(w *world, b *v1alpha1.Bucket) {
				theirs(w, b)
				meta.SetExternalCreateSucceeded(b, time.Now())
			},
			want:    asyncstate.ReasonFinished,
			creates: 1,
			name:    "theirs",
		},
		"AnnouncedByUpstream": {
			reason: "A create of upstream's that has not ended settles nothing.",
			then:   func(_ *world, b *v1alpha1.Bucket) { meta.SetExternalCreatePending(b, time.Now()) }, want: asyncstate.ReasonResultUnknown, creates: 1,
		},
		"SecondAttemptInTheSameSecond": {
			reason:  "That the first attempt failed says nothing of the second, although the annotations say the same second.",
			refused: true, then: func(*world, *v1alpha1.Bucket) {}, want: asyncstate.ReasonResultUnknown, creates: 2,
		},
		"SecondAttemptPendingRemoved": {
			reason:  "A person says that it is safe to go on after the second attempt.",
			refused: true, then: func(_ *world, b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending) },
			want: asyncstate.ReasonFinished, creates: 3, name: "id-0001",
		},
		"SecondAttemptByAClockBehind": {
			reason:  "As above, if the first attempt failed on a machine whose clock is ten minutes ahead.",
			refused: true, before: func(_ *world, b *v1alpha1.Bucket) { meta.SetExternalCreateFailed(b, time.Now().Add(10*time.Minute)) }, then: func(*world, *v1alpha1.Bucket) {},
			want: asyncstate.ReasonResultUnknown, creates: 2,
		},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, nothing, bucket("b"))
			w.manual, w.plain = true, tc.plain
			p := w.start()

			if tc.refused {
				w.cloud.refuses(errQuota)
				reconciled(t, p, "b")
				synctest.Wait()
				w.cloud.refuses(nil)
				w.edit("b", func(b *v1alpha1.Bucket) {
					// Who changes the spec need not wait.
					b.Generation++
					b.Spec.ForProvider.Region = "elsewhere"

					if tc.before != nil {
						tc.before(w, b)
					}
				})
			}

			for w.cloud.count(asyncstate.Create) < 1+boolToInt(tc.refused) {
				_, _ = p.reconcile("b")
				synctest.Wait()
			}

			pass(3 * time.Minute)
			p.kill()

			w.edit("b", func(b *v1alpha1.Bucket) { tc.then(w, b) })
			p = w.start()

			for range 4 {
				_, _ = p.reconcile("b")
				pass(15 * time.Minute)
			}

			b := w.get("b")
			if n := w.cloud.count(asyncstate.Create); n != tc.creates || reason(b, asyncstate.TypeOperation) != tc.want || meta.GetExternalName(b) != tc.name || (record(b) == "") != (tc.name != "") {
				t.Errorf("\n%s\n%d creates: %s", tc.reason, n, describe(b))
			}

			if said := strings.Contains(w.said.All(), "settled by another writer"); said != (tc.want == asyncstate.ReasonFinished) {
				t.Errorf("\n%s\nsettled elsewhere: %t", tc.reason, said)
			}
		})
	}
}
