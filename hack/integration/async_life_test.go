//go:build integration

package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// 50 managed resources are created, changed and deleted in the background, while
// other controllers write to all of them. While their creates run, some are deleted,
// some paused, and of some the spec is changed.
func TestAsyncLife(t *testing.T) {
	s := newServer(t)
	world := cloud.New(cloud.Options{
		Defaults:       map[string]string{"region": "north"},
		RequestLatency: 20 * time.Millisecond,
		ReadyAfter:     300 * time.Millisecond,
		GoneAfter:      200 * time.Millisecond,
	})
	answers := newBarrier(world, cloud.OpCreate)
	w := map[string]*witness{v1alpha1.DatabaseKind: watchKind(t, databaseResource()), v1alpha1.BucketKind: watchKind(t, v1alpha1.GroupVersion().WithResource("buckets"))}

	// seen waits until a condition of each of the fleet was so.
	seen := func(fleet []sample.Instance, ct xpv2.ConditionType, reason xpv2.ConditionReason, message string) {
		t.Helper()

		status := "True"
		if ct == xpv2.TypeReady {
			status = "False"
		}

		for _, mg := range fleet {
			w[kindOf(mg)].until(t, mg.GetName(), message, says(ct, status, reason, message))
		}
	}

	all := fleet("life", 25)
	deleted, paused, changed, rest := all[:10], all[10:20], all[20:30], all[10:]

	s.create(t, all...)

	others := newOthers(t, s, all)

	start(t, flavour{name: "Async", build: func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
		return newAsync(m, of, s, func(*asyncstate.Tracker) connectors { return s.connectors }, asyncstate.WithBackoff(50*time.Millisecond, time.Second))
	}}, setup{connectors: lastingConnectors(world), poll: time.Second})

	// All creates have reached the cloud, and none has an answer yet.
	answers.await(t, cloud.OpCreate, len(all))
	seen(all, asyncstate.TypeOperation, asyncstate.ReasonRunning, "create, attempt 1, since T")

	var wg sync.WaitGroup

	// They annotate and set conditions. The specs are the test's.
	wg.Go(func() { others.write(t, others.condition, others.annotation) })

	s.remove(t, deleted...)
	s.annotate(t, meta.AnnotationKeyReconciliationPaused, "true", paused...)
	s.merge(t, `{"spec":{"forProvider":{"size":5}}}`, changed...)

	const waits = "The external resource is deleted once the create that runs has ended."

	seen(deleted, reconciler.TypeDeleting, reconciler.ReasonWaitingForAsyncOperation, waits)
	seen(deleted, xpv2.TypeReady, xpv2.ReasonDeleting, waits)

	answers.open(cloud.OpCreate)

	// The result of the create is stored although the object is paused.
	s.until(t, "the paused ones have their names", paused, func(mg sample.Instance) bool {
		return externalName(mg) != "" && mg.GetAnnotations()[asyncstate.AnnotationKeyOperation] == ""
	})
	s.annotate(t, meta.AnnotationKeyReconciliationPaused, "false", paused...)

	s.until(t, "those that are left show Available, of the size asked for", rest, func(mg sample.Instance) bool {
		return isAvailable(mg) && size(world, mg) == fmt.Sprint(mg.GetForProvider().Size) && condition(mg, asyncstate.TypeOperation) == "False/Finished"
	})

	for _, mg := range deleted {
		w[kindOf(mg)].until(t, mg.GetName(), "it is gone", isGone)
	}

	wg.Wait()
	others.check(t)
	s.owned(t, world, len(rest))

	answers.close(cloud.OpUpdate)
	s.merge(t, `{"spec":{"forProvider":{"size":6}}}`, rest...)
	answers.await(t, cloud.OpUpdate, len(rest))
	seen(rest, asyncstate.TypeOperation, asyncstate.ReasonRunning, "update, attempt 1, since T")

	// The last spec is applied, whatever was in progress.
	s.merge(t, `{"spec":{"forProvider":{"size":7}}}`, rest...)
	answers.open(cloud.OpUpdate)
	s.until(t, "all are of the last size", rest, func(mg sample.Instance) bool { return isAvailable(mg) && size(world, mg) == "7" })

	answers.close(cloud.OpDelete)
	s.remove(t, rest...)
	answers.await(t, cloud.OpDelete, len(rest))
	seen(rest, asyncstate.TypeOperation, asyncstate.ReasonRunning, "delete, attempt 1, since T")
	seen(rest, reconciler.TypeDeleting, reconciler.ReasonWaitingForAsyncOperation, "The external resource is being deleted.")
	answers.open(cloud.OpDelete)

	s.untilGone(t)

	if left := world.Inventory(); len(left) != 0 {
		t.Errorf("want no external resource left, got %v", left)
	}

	for _, mg := range all {
		if st := world.Stats(string(mg.GetUID())); st.Created != 1 {
			t.Errorf("%T %s: want one external resource ever, got %+v", mg, mg.GetName(), st)
		}
	}
}

func kindOf(mg sample.Instance) string {
	if _, ok := mg.(*v1alpha1.Database); ok {
		return v1alpha1.DatabaseKind
	}

	return v1alpha1.BucketKind
}
