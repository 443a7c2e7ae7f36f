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
	type edit func(w *world, b *v1alpha1.Bucket)

	untouched := func(*world, *v1alpha1.Bucket) {}
	removed := func(_ *world, b *v1alpha1.Bucket) { meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending) }

	// theirs has another writer, whose clock is ahead, have created the external resource.
	theirs := func(pending bool, clock time.Duration, more edit) edit {
		return func(w *world, b *v1alpha1.Bucket) {
			w.cloud.add("theirs", "")
			meta.SetExternalName(b, "theirs")

			if pending {
				meta.SetExternalCreatePending(b, time.Now().Add(clock))
			}

			meta.SetExternalCreateSucceeded(b, time.Now().Add(clock))
			more(w, b)
		}
	}

	unknown := func(creates int) ending {
		return ending{Creates: creates, Operation: asyncstate.ReasonResultUnknown, Ready: xpv2.ReasonCreating, Synced: xpv2.ReasonReconcileError, Recorded: true, Incomplete: true}
	}
	succeeded := unknown(1)
	succeeded.Incomplete = false

	cases := map[string]struct {
		reason string
		plain  bool

		// before is called if a first attempt is refused in the second in which the
		// second attempt is announced, then after the attempt that is interrupted.
		before, then edit
		want         ending
	}{
		"Untouched":              {reason: "The outcome is unknown.", then: untouched, want: unknown(1)},
		"UntouchedUnderUpstream": {reason: "Upstream says that a create has succeeded as soon as it has begun.", plain: true, then: untouched, want: succeeded},
		"PendingRemoved":         {reason: "Upstream's message asks for this annotation to be removed if it is safe to go on.", then: removed, want: finished(2, "id-0001")},
		"PendingRemovedAndNamed": {reason: "A person has found the external resource.", then: theirs(false, 0, func(_ *world, b *v1alpha1.Bucket) {
			meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending, meta.AnnotationKeyExternalCreateSucceeded)
		}), want: finished(1, "theirs")},
		"CreatedByUpstream": {
			reason: "The provider was rolled back to upstream, which created the external resource, and then updated.",
			then:   theirs(true, 0, untouched), want: finished(1, "theirs"),
		},
		"CreatedByUpstreamWithAClockBehind": {reason: "As above, on a machine whose clock is an hour behind.", then: theirs(true, -time.Hour, untouched), want: finished(1, "theirs")},
		"RefusedUnderUpstream": {
			reason: "The provider was rolled back to upstream, whose create failed, and then updated.",
			then: func(_ *world, b *v1alpha1.Bucket) {
				meta.SetExternalCreatePending(b, time.Now())
				meta.SetExternalCreateFailed(b, time.Now())
			},
			want: finished(2, "id-0001"),
		},
		"SucceededByHand": {reason: "A person says that the create has succeeded, and under which name.", then: theirs(false, 0, untouched), want: finished(1, "theirs")},
		"AnnouncedByUpstream": {
			reason: "A create of upstream's that has not ended settles nothing.",
			then:   func(_ *world, b *v1alpha1.Bucket) { meta.SetExternalCreatePending(b, time.Now()) }, want: unknown(1),
		},
		"SecondAttemptInTheSameSecond": {
			reason: "That the first attempt failed says nothing of the second, although the annotations say the same second.",
			before: untouched, then: untouched, want: unknown(2),
		},
		"SecondAttemptPendingRemoved": {reason: "A person says that it is safe to go on after the second attempt.", before: untouched, then: removed, want: finished(3, "id-0001")},
		"SecondAttemptByAClockBehind": {
			reason: "As above, if the first attempt failed on a machine whose clock is ten minutes ahead.",
			before: func(_ *world, b *v1alpha1.Bucket) { meta.SetExternalCreateFailed(b, time.Now().Add(10*time.Minute)) }, then: untouched, want: unknown(2),
		},
	}

	lives := map[string]life{}

	for name, tc := range cases {
		lives[name] = life{reason: tc.reason, plain: tc.plain, want: tc.want, happens: func(t *testing.T, w *world) {
			p := w.start()

			if tc.before != nil {
				w.cloud.refuses(errQuota)
				reconciled(t, p, "b")
				synctest.Wait()
				w.cloud.refuses(nil)
				w.edit("b", func(b *v1alpha1.Bucket) {
					// Who changes the spec need not wait.
					b.Generation++
					b.Spec.ForProvider.Region = "elsewhere"

					tc.before(w, b)
				})
			}

			for w.cloud.count(asyncstate.Create) < 1+boolToInt(tc.before != nil) {
				p.again(1, 0)
			}

			pass(3 * time.Minute)
			p.kill()
			w.edit("b", func(b *v1alpha1.Bucket) { tc.then(w, b) })
			w.start().again(4, 15*time.Minute)

			if said := strings.Contains(w.said.All(), "settled by another writer"); said != (tc.want.Operation == asyncstate.ReasonFinished) {
				t.Errorf("\n%s\nsettled elsewhere: %t", tc.reason, said)
			}
		}}
	}

	live(t, lives)
}
