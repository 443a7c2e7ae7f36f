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

// ending returns the outcome that docs/async.md describes.
func (i interruption) ending() ending {
	out := ending{
		Creates:   1,
		Made:      1,
		Left:      1,
		Operation: asyncstate.ReasonFinished,
		Ready:     xpv2.ReasonAvailable,
		Synced:    xpv2.ReasonReconcileSuccess,
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
		known := i.effective && slices.Contains([]clientKind{resumer, namedMid}, i.kind) ||
			slices.Contains([]clientKind{
				finder, token, deterministic,
			}, i.kind)
		switch {
		case !known:
			out.Made, out.Left = boolToInt(i.effective), boolToInt(i.effective)
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
			return ending{Creates: 1, Gone: true}
		case !i.effective:
			out.Creates = 2
		}
	}
	if !i.deleting {
		return out
	}
	return ending{Creates: out.Creates, Updates: out.Updates, Deletes: max(1, out.Deletes), Made: out.Made, Gone: true}
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
		for _, k := range []clientKind{nothing, finder, resumer, token, deterministic, namedMid} {
			for n := range 8 {
				i := interruption{kind: k, typ: typ, effective: n&1 > 0, deleting: n&2 > 0, paused: n&4 > 0}
				if i.deleting || typ != asyncstate.Delete {
					bubble(t, fmt.Sprintf("%+v", i), i.happen)
				}
			}
		}
	}
}

func (i interruption) happen(t *testing.T) {
	t.Helper()
	w := newWorld(t, i.kind, bucket("b"))
	p := w.start()
	if i.typ != asyncstate.Create {
		pass(11 * time.Minute)
	}
	w.ask(i.typ)

	// An operation takes ten minutes, and has its effect after half of that.
	pass(3 * time.Minute)
	if i.effective {
		pass(3 * time.Minute)
	}
	p.kill()
	if _, running := p.tracker.Lookup(w.get("b").GetUID()); !running {
		t.Fatalf("Nothing was interrupted: %s", describe(w.get("b")))
	}
	if i.deleting {
		w.delete("b")
	}
	if i.paused {
		w.edit("b", func(b *v1alpha1.Bucket) {
			// There are two ways to pause.
			if i.effective {
				b.SetManagementPolicies(xpv2.ManagementPolicies{})
			} else {
				meta.AddAnnotations(b, map[string]string{meta.AnnotationKeyReconciliationPaused: "true"})
			}
		})
	}
	p = w.start()
	if i.paused {
		i.pause(t, w)
	}
	pass(90 * time.Minute)
	b, got := w.get("b"), w.ending()
	got.Name = "" // It is below.
	wants(t, describe(b), "ending", i.ending(), got)
	wants(
		t, "", "resolutions that are counted", boolToInt(i.typ == asyncstate.Create),
		len(counted.FindAllString(exposed(t, p.metrics), -1)),
	)
	wants(
		t, "Nothing was observed: "+condition(b, xpv2.TypeSynced), "said that an Observe failed", false,
		strings.Contains(condition(b, xpv2.TypeSynced), "observe failed"),
	)
	if names := w.cloud.names(); !got.Gone && got.Ready == xpv2.ReasonAvailable &&
		(w.cloud.region(names[0]) != b.Spec.ForProvider.Region || i.kind != deterministic &&
			names[0] != meta.GetExternalName(b)) {
		t.Errorf("The cloud has %v in %q: %s", names, w.cloud.region(names[0]), describe(b))
	}
}

// pause lets time pass while reconciliation is paused, and ends that.
func (i interruption) pause(t *testing.T, w *world) {
	t.Helper()
	had, calls := record(w.get("b")), maps.Clone(w.cloud.calls)
	pass(2 * time.Hour)
	b := w.get("b")
	if !maps.Equal(calls, w.cloud.calls) || record(b) != had || had == "" {
		t.Errorf(
			"While it is paused operations were begun, %v after %v, and the record was %q: %s", w.cloud.calls, calls,
			had, describe(b),
		)
	}
	wants(
		t, "While it is paused it should say so, and that its operation was interrupted.\n"+describe(b),
		"Synced, operation", []any{
			xpv2.ReasonReconcilePaused, asyncstate.ReasonInterrupted,
		},
		[]any{reason(b, xpv2.TypeSynced), reason(b, asyncstate.TypeOperation)},
	)
	w.edit("b", func(b *v1alpha1.Bucket) {
		b.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionAll})
		meta.RemoveAnnotations(b, meta.AnnotationKeyReconciliationPaused)
	})
}
