//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const writers = 3

// 50 managed resources are created, changed and deleted at the same time while
// other controllers write to them, one in 20 of the provider's writes fails or loses
// its answer, and so do the cloud's calls.
func TestStress(t *testing.T) {
	const objects, percent = 50, 5
	s := newServer(t)
	api, calls := newDice(0), newDice(0)
	faults := func(percent int) {
		api.set(percent, refuseConflict, refuseInternal, loseAnswer)
		calls.set(percent, refuseInternal)
	}
	faults(percent)
	world := cloud.New(cloud.Options{Defaults: map[string]string{"region": "north"}})
	world.SetHooks(cloud.Hooks{Before: func(context.Context, cloud.Call) error {
		if calls.throw() != noFault {
			return errors.New("injected: service unavailable")
		}
		return nil
	}})
	tr := &traffic{fault: func(c call, body []byte) fault {
		if c.Reads() {
			return noFault
		}

		// If the answer to the write that announces a create is lost, the create must
		// not start. Later it is unknown whether it did. Upstream stops there until
		// an operator decides, and so does Graft.
		f := api.throw()
		if f == loseAnswer && c.Method == http.MethodPut &&
			bytes.Contains(body, []byte(meta.AnnotationKeyExternalCreatePending)) &&
			!bytes.Contains(body, []byte(meta.AnnotationKeyExternalCreateSucceeded)) {
			f = refuseInternal
		}
		return f
	}}
	all := fleet("stress", objects/2, func(mg sample.Instance) { mg.SetFinalizers([]string{otherFinalizer}) })
	stop := start(t, graft, setup{connectors: syncConnectors(world), poll: 200 * time.Millisecond, wrap: tr.wrap})
	s.create(t, all...)
	others := &others{server: s}
	for _, mg := range all {
		others.fleet = append(others.fleet, read(t, s, mg)) // The test keeps its own copies.
	}
	others.write(t)
	s.until(t, "all are of the size asked for", all, func(mg sample.Instance) bool {
		return size(world, mg) == fmt.Sprint(mg.GetForProvider().Size)
	})

	// What all say at once no failure may hide.
	faults(0)
	s.until(t, "all show Available", all, isAvailable)
	s.owned(t, world, objects)
	others.check(t)
	faults(percent)

	// They write while everything is being deleted, and when it goes.
	var wg sync.WaitGroup
	wg.Go(func() { others.write(t) })
	s.remove(t, all...)
	wg.Wait()
	faults(0)
	s.until(t, "all say what they wait for", all, func(mg sample.Instance) bool {
		return condition(mg, reconciler.TypeDeleting) == "True/"+string(reconciler.ReasonWaitingForFinalizers) &&
			condition(mg, xpv2.TypeReady) == "False/Deleting"
	})
	others.check(t)
	s.owned(t, world, objects)
	faults(percent)
	wg.Go(func() { others.write(t) })
	s.merge(t, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, managedFinalizer), all...)
	wg.Wait()
	s.untilGone(t)
	stop()
	if left := world.Inventory(); len(left) != 0 {
		t.Errorf("want no external resource left, got %v", left)
	}
	t.Logf("%d faults of the API server, %d of the cloud", api.count(), calls.count())
}

// others write a condition and an annotation each to all objects, and change the spec.
type others struct {
	server server
	fleet  []sample.Instance
	rounds int
}

func (o *others) key(writer int) string { return fmt.Sprintf("example.org/other-%d", writer) }

func (o *others) condition(writer int) xpv2.ConditionType {
	return xpv2.ConditionType(fmt.Sprintf("Other%d", writer))
}

func (o *others) write(t *testing.T) {
	t.Helper()
	o.rounds++
	inParallel(t, writers, writers*len(o.fleet), func(i int) error {
		return client.IgnoreNotFound(o.touch(t.Context(), o.fleet[i/writers], i%writers))
	})
}

func (o *others) touch(ctx context.Context, mg client.Object, writer int) error {
	got, _ := mg.DeepCopyObject().(sample.Instance)
	if err := o.server.Patch(
		ctx,
		got,
		mergePatch(fmt.Sprintf(
			`{"metadata":{"annotations":{%q:"%d"}},"spec":{"forProvider":{"size":%d}}}`,
			o.key(writer),
			o.rounds,
			o.rounds*writers+writer,
		)),
	); err != nil {
		return err
	}
	return retry.RetryOnConflict(wait.Backoff{Steps: 100}, func() error {
		if err := o.server.Get(ctx, client.ObjectKeyFromObject(mg), got); err != nil {
			return err
		}
		got.SetConditions(xpv2.Condition{
			Type:   o.condition(writer),
			Status: corev1.ConditionTrue,
			Reason: "Written", Message: fmt.Sprint(o.rounds), LastTransitionTime: metav1.Now(),
		})
		return o.server.Status().Update(ctx, got)
	})
}

func (o *others) check(t *testing.T) {
	t.Helper()
	for _, mg := range o.server.list(t.Context(), t) {
		for w := range writers {
			want, got := fmt.Sprint(o.rounds), mg.GetCondition(o.condition(w))
			if a := mg.GetAnnotations()[o.key(w)]; a != want || got.Message != want ||
				got.Status != corev1.ConditionTrue {
				t.Errorf(
					"%s: want %s in what writer %d wrote, got the annotation %q and the condition %v",
					mg.GetName(),
					want,
					w,
					a,
					got,
				)
			}
		}
	}
}
