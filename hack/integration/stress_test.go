//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	// writers write conditions, annotations and specs each, writes times.
	writers = 3
	writes  = 60
)

// 50 managed resources are created, changed and deleted at the same time while
// other controllers write to them, one in 20 of the provider's writes fails or loses
// its answer, and so do the cloud's calls.
func TestStress(t *testing.T) {
	const (
		objects = 50
		percent = 5
	)
	s := newServer(t)
	api, calls := newDice(percent, refuseConflict, refuseInternal, loseAnswer), newDice(percent, refuseInternal)
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
		if f == loseAnswer && c.Method == http.MethodPut && bytes.Contains(body, []byte(meta.AnnotationKeyExternalCreatePending)) && !bytes.Contains(body, []byte(meta.AnnotationKeyExternalCreateSucceeded)) {
			f = refuseInternal
		}
		return f
	}}
	all := fleet("stress", objects/2, func(mg sample.Instance) { mg.SetFinalizers([]string{otherFinalizer}) })
	p := start(t, graft, setup{connectors: syncConnectors(world), poll: 200 * time.Millisecond, wrap: tr.wrap})
	s.create(t, all...)
	others := &others{server: s, wrote: map[types.UID]map[string]string{}}
	for _, mg := range all {
		others.fleet = append(others.fleet, read(t, s, mg)) // The test keeps its own copies.
	}
	others.write(t)
	s.until(t, "all show Available, of the size asked for", all, func(mg sample.Instance) bool {
		return isAvailable(mg) && size(world, mg) == fmt.Sprint(mg.GetForProvider().Size)
	})
	s.owned(t, world, objects)
	others.check(t)

	// They write while everything is being deleted, and when it goes.
	var wg sync.WaitGroup
	wg.Go(func() { others.write(t) })
	s.remove(t, all...)
	wg.Wait()

	// Every failure is a reason of its own, which would never all be the same.
	api.set(0)
	calls.set(0)
	s.until(t, "all say what they wait for", all, func(mg sample.Instance) bool {
		return condition(mg, reconciler.TypeDeleting) == "True/"+string(reconciler.ReasonWaitingForFinalizers) &&
			condition(mg, xpv2.TypeReady) == "False/Deleting"
	})
	others.check(t)
	s.owned(t, world, objects)
	api.set(percent, refuseConflict, refuseInternal, loseAnswer)
	calls.set(percent, refuseInternal)
	wg.Go(func() { others.write(t) })
	s.merge(t, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, managedFinalizer), all...)
	wg.Wait()
	s.untilGone(t)
	p.stop()
	if left := world.Inventory(); len(left) != 0 {
		t.Errorf("want no external resource left, got %v", left)
	}
	t.Logf("%d faults of the API server, %d of the cloud", api.count(), calls.count())
}

type others struct {
	server server
	fleet  []sample.Instance

	mu    sync.Mutex
	wrote map[types.UID]map[string]string
}

func (o *others) check(t *testing.T) {
	t.Helper()
	for uid, mg := range o.server.list(t.Context(), t) {
		o.mu.Lock()
		want := maps.Clone(o.wrote[uid])
		o.mu.Unlock()
		got := map[string]string{}
		for key := range want {
			if v, ok := mg.GetAnnotations()[key]; ok {
				got[key] = v
			}
			if c := mg.GetCondition(xpv2.ConditionType(key)); c.Status == corev1.ConditionTrue {
				got[key] = c.Message
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: what others wrote: -want, +got:\n%s", mg.GetName(), diff)
		}
	}
}

// write to random objects, all writers at the same time. It returns when all have
// written.
func (o *others) write(t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range writers {
		pick := rand.New(rand.NewPCG(1, uint64(w)))
		wg.Go(func() {
			for range writes {
				mg := o.fleet[pick.IntN(len(o.fleet))]
				if err := client.IgnoreNotFound(o.touch(t.Context(), mg, w, fmt.Sprint(1+pick.Int64N(1e6)))); err != nil {
					t.Errorf("cannot write to %s: %v", mg.GetName(), err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func (o *others) touch(ctx context.Context, mg client.Object, writer int, value string) error {
	got, ok := mg.DeepCopyObject().(sample.Instance)
	if !ok {
		return fmt.Errorf("%T is not the sample's", mg)
	}
	key, ct := fmt.Sprintf("example.org/other-%d", writer), fmt.Sprintf("Other%d", writer)
	if err := o.server.Patch(ctx, got, mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"forProvider":{"size":%s}}}`, key, value, value))); err != nil {
		return err
	}
	o.note(mg, key, value)
	err := retry.RetryOnConflict(wait.Backoff{Steps: 100}, func() error {
		if err := o.server.Get(ctx, client.ObjectKeyFromObject(mg), got); err != nil {
			return err
		}
		got.SetConditions(xpv2.Condition{
			Type: xpv2.ConditionType(ct), Status: corev1.ConditionTrue, Reason: "Written", Message: value, LastTransitionTime: metav1.Now(),
		})
		return o.server.Status().Update(ctx, got)
	})
	if err == nil {
		o.note(mg, ct, value)
	}
	return err
}

func (o *others) note(mg client.Object, what, value string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wrote[mg.GetUID()] == nil {
		o.wrote[mg.GetUID()] = map[string]string{}
	}
	o.wrote[mg.GetUID()][what] = value
}
