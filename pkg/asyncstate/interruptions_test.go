package asyncstate_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// An interruption is an operation during which the process died.
type interruption struct {
	kind clientKind
	typ  asyncstate.Type

	effective bool // It had its effect on the external system.

	// deleting means that the object was deleted while no process ran, paused that
	// its reconciliation was paused then, for a while.
	deleting, paused bool
}

// finalState returns the outcome that docs/async.md describes.
func (i interruption) finalState() finalState {
	out := finalState{
		Creates: 1, Created: 1, Remaining: 1, Operation: asyncstate.ReasonFinished, Ready: xpv2.ReasonAvailable,
		Synced: xpv2.ReasonReconcileSuccess,
	}
	switch i.typ {
	case asyncstate.Update:
		out.Updates = 1
		if !i.effective && !i.deleting {
			out.Updates = 2
		}
	case asyncstate.Delete:
		// The external resource no longer exists, which Observe sees by its name.
		out.Deletes = 1
		if !i.effective {
			out.Deletes = 2
		}
	case asyncstate.Create:
		// Two have the handle, or the name, from when there was something.
		known := i.effective && slices.Contains([]clientKind{resumer, namesEarly}, i.kind) ||
			slices.Contains([]clientKind{
				finder, token, deterministic,
			}, i.kind)
		switch {
		case !known:
			out.Created, out.Remaining = boolToInt(i.effective), boolToInt(i.effective)
			out.Operation = asyncstate.ReasonOutcomeUnknown
			out.Ready, out.Synced = xpv2.ReasonCreating, xpv2.ReasonReconcileError
			out.Recorded, out.Incomplete = true, true
			if i.deleting {
				out.Ready, out.Deleting = xpv2.ReasonDeleting, reconciler.ReasonCreateResultUnknown
			}
			return out
		case i.kind == token:
			// The name is needed for a deletion, too.
			out.Creates = 2
		case !i.effective && i.deleting:
			// There is nothing to delete, either.
			return finalState{Creates: 1, Gone: true}
		case !i.effective:
			out.Creates = 2
		}
	}
	if !i.deleting {
		return out
	}
	return finalState{
		Creates: out.Creates, Updates: out.Updates, Deletes: max(1, out.Deletes), Created: out.Created, Gone: true,
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

var counted = regexp.MustCompile(`graft_async_interrupted_total{.*} 1`)

// An interrupted operation should end as docs/async.md says. A paused object should not change.
func TestInterruptions(t *testing.T) {
	for _, typ := range []asyncstate.Type{asyncstate.Create, asyncstate.Update, asyncstate.Delete} {
		for _, k := range []clientKind{plainClient, finder, resumer, token, deterministic, namesEarly} {
			for n := range 8 {
				i := interruption{kind: k, typ: typ, effective: n&1 > 0, deleting: n&2 > 0, paused: n&4 > 0}
				if i.deleting || typ != asyncstate.Delete {
					runInBubble(t, fmt.Sprintf("%+v", i), i.run)
				}
			}
		}
	}
}

func (i interruption) run(t *testing.T) {
	t.Helper()
	e := newEnvironment(t, i.kind, bucket("b"))
	p := e.startProvider()
	if i.typ != asyncstate.Create {
		advanceClock(11 * time.Minute)
	}
	e.requestOperation(i.typ)

	// An operation takes ten minutes, and has its effect after half of that.
	advanceClock(3 * time.Minute)
	if i.effective {
		advanceClock(3 * time.Minute)
	}
	p.kill()
	if _, running := p.tracker.Lookup(e.get("b").GetUID()); !running {
		t.Fatalf("Nothing was interrupted: %s", describe(e.get("b")))
	}
	if i.deleting {
		e.delete("b")
	}
	if i.paused {
		e.edit("b", func(b *v1alpha1.Bucket) {
			// There are two ways to pause.
			if i.effective {
				b.SetManagementPolicies(xpv2.ManagementPolicies{})
			} else {
				meta.AddAnnotations(b, map[string]string{meta.AnnotationKeyReconciliationPaused: "true"})
			}
		})
	}
	p = e.startProvider()
	if i.paused {
		i.pause(t, e)
	}
	advanceClock(90 * time.Minute)
	b, got := e.get("b"), e.finalState()
	got.Name = "" // It is below.
	expectEqual(t, describe(b), "final state", i.finalState(), got)
	expectEqual(
		t, "", "resolutions that are counted", boolToInt(i.typ == asyncstate.Create),
		len(counted.FindAllString(exposed(t, p.metrics), -1)),
	)
	expectEqual(
		t, "Nothing was observed: "+condition(b, xpv2.TypeSynced), "said that an Observe failed", false,
		strings.Contains(condition(b, xpv2.TypeSynced), "observe failed"),
	)
	if names := e.cloud.names(); !got.Gone && got.Ready == xpv2.ReasonAvailable &&
		(e.cloud.region(names[0]) != b.Spec.ForProvider.Region || i.kind != deterministic &&
			names[0] != meta.GetExternalName(b)) {
		t.Errorf("The cloud has %v in %q: %s", names, e.cloud.region(names[0]), describe(b))
	}
}

// pause lets time pass while reconciliation is paused, and ends that.
func (i interruption) pause(t *testing.T, e *environment) {
	t.Helper()
	had, calls := record(e.get("b")), maps.Clone(e.cloud.calls)
	advanceClock(2 * time.Hour)
	b := e.get("b")
	if !maps.Equal(calls, e.cloud.calls) || record(b) != had || had == "" {
		t.Errorf(
			"While it is paused operations were begun, %v after %v, and the record was %q: %s", e.cloud.calls, calls,
			had, describe(b),
		)
	}
	expectEqual(
		t, "While it is paused it should say so, and that its operation was interrupted.\n"+describe(b),
		"Synced, operation", []any{
			xpv2.ReasonReconcilePaused, asyncstate.ReasonInterrupted,
		},
		[]any{reason(b, xpv2.TypeSynced), reason(b, asyncstate.TypeOperation)},
	)
	e.edit("b", func(b *v1alpha1.Bucket) {
		b.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionAll})
		meta.RemoveAnnotations(b, meta.AnnotationKeyReconciliationPaused)
	})
}
