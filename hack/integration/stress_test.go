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
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	stressObjects = 50

	// stressFaults is how many of 100 writes to the API server, and of 100
	// calls of the cloud, fail.
	stressFaults = 5

	// stressWriters write conditions, annotations and specs each. Each makes so
	// many writes while objects are created, while they are held in deletion,
	// and while they go.
	stressWriters = 3
	stressWrites  = 60
)

// 50 managed resources are created, changed and deleted at the same time while
// others write to them, one in 20 of the provider's writes fails or loses its
// answer, and so do the cloud's calls.
func TestStress(t *testing.T) {
	const seed = 1

	began := time.Now()
	phase := func(name string) {
		t.Logf("%s: %s", time.Since(began).Round(time.Millisecond), name)
	}

	s := newServer(t)
	dice := newDice(seed)
	world := cloud.New(cloud.Options{Defaults: map[string]string{"region": "north"}})
	world.SetHooks(cloud.Hooks{Before: dice.failCall})

	tr := &traffic{fault: dice.failWrite}
	all := fleet("stress", stressObjects/2, func(mg sample.Instance) { mg.SetFinalizers([]string{otherFinalizer}) })

	p := start(t, graft, setup{connectors: syncConnectors(world), poll: 200 * time.Millisecond, traffic: tr})

	s.create(t, all...)

	others := newOthers(t, s, all, seed)
	others.write(t)
	phase("written to during creation")

	s.until(t, "all show Available, of the size asked for", all, func(mg sample.Instance) bool {
		return isAvailable(mg) && size(world, mg) == fmt.Sprint(mg.GetForProvider().Size)
	})

	phase("created")

	owners := idsByOwner(world)

	if len(world.Inventory()) != stressObjects || len(owners) != stressObjects {
		t.Errorf("want %d external resources of as many owners, got %d of %d", stressObjects, len(world.Inventory()), len(owners))
	}

	for uid, mg := range s.list(t.Context(), t) {
		if want := owners[uid]; externalName(mg) != want {
			t.Errorf("%s: want external name %q, got %q", mg.GetName(), want, externalName(mg))
		}
	}

	others.check(t)

	// Others go on while everything is being deleted, and when it goes.
	var wg sync.WaitGroup

	wg.Go(func() { others.write(t) })
	s.remove(t, all...)
	wg.Wait()

	phase("written to during deletion")

	// Every failure is a reason of its own, which would never all be the same.
	dice.rest(true)
	s.until(t, "all say what they wait for", all, func(mg sample.Instance) bool {
		return condition(mg, reconciler.TypeDeleting) == "True/"+string(reconciler.ReasonWaitingForFinalizers) &&
			condition(mg, xpv2.TypeReady) == "False/Deleting"
	})
	others.check(t)

	phase("held")

	if n := len(world.Inventory()); n != stressObjects {
		t.Errorf("want %d external resources until others remove their finalizers, got %d", stressObjects, n)
	}

	dice.rest(false)
	wg.Go(func() { others.write(t) })
	s.merge(t, `{"metadata":{"finalizers":["finalizer.managedresource.crossplane.io"]}}`, all...)
	wg.Wait()

	phase("written to while going")
	s.untilGone(t)
	phase("gone")
	p.stop()

	if left := world.Inventory(); len(left) != 0 {
		t.Errorf("want no external resource left, got %v", left)
	}

	for _, mg := range all {
		if st := world.Stats(string(mg.GetUID())); st.Created != 1 {
			t.Errorf("%s: want one external resource ever, got %+v", mg.GetName(), st)
		}
	}

	t.Logf("faults: %v; requests: %v", dice.thrown(), tr.counted())
}

func size(world *cloud.Cloud, mg sample.Instance) string {
	for _, r := range world.Inventory() {
		if r.Owner == string(mg.GetUID()) {
			return r.Properties["size"]
		}
	}

	return ""
}

// dice decide what fails. They are safe for concurrent use. The same seed gives
// the same throws, though not to the same requests.
type dice struct {
	mu     sync.Mutex
	rand   *rand.Rand
	idle   bool
	faults map[string]int
}

func newDice(seed uint64) *dice {
	return &dice{rand: rand.New(rand.NewPCG(seed, 0)), faults: map[string]int{}}
}

// rest lets everything succeed, or no longer.
func (d *dice) rest(idle bool) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.idle = idle
}

// fails throws. The caller holds the lock.
func (d *dice) fails() bool { return !d.idle && d.rand.IntN(100) < stressFaults }

func (d *dice) thrown() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()

	return maps.Clone(d.faults)
}

func (d *dice) failWrite(c call, body []byte) fault {
	if c.Method == http.MethodGet {
		return noFault
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	if !d.fails() {
		return noFault
	}

	f := []fault{refuseConflict, refuseInternal, loseAnswer}[d.rand.IntN(3)]

	// If the answer to the write that announces a create is lost, the create must
	// not start. Later it is unknown whether it did. Upstream stops there until
	// an operator decides, and so does Graft.
	if f == loseAnswer && c.Method == http.MethodPut && bytes.Contains(body, []byte(meta.AnnotationKeyExternalCreatePending)) && !bytes.Contains(body, []byte(meta.AnnotationKeyExternalCreateSucceeded)) {
		f = refuseInternal
	}

	d.faults[map[fault]string{refuseConflict: "409", refuseInternal: "500", loseAnswer: "lost answer"}[f]]++

	return f
}

func (d *dice) failCall(_ context.Context, c cloud.Call) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if !d.fails() {
		return nil
	}

	d.faults["cloud "+string(c.Op)]++

	return errors.New("injected: service unavailable")
}

// others write to managed resources that aren't theirs.
type others struct {
	server server
	fleet  []sample.Instance
	seed   uint64

	mu    sync.Mutex
	wrote map[types.UID]map[string]string
}

func newOthers(t *testing.T, s server, fleet []sample.Instance, seed uint64) *others {
	t.Helper()

	o := &others{server: s, seed: seed, wrote: map[types.UID]map[string]string{}}

	// The test keeps its own copies.
	for _, mg := range fleet {
		o.fleet = append(o.fleet, read(t, s, mg))
	}

	return o
}

// check that everything that others wrote last is there.
func (o *others) check(t *testing.T) {
	t.Helper()

	for uid, mg := range o.server.list(t.Context(), t) {
		if diff := cmp.Diff(o.of(uid), foreign(mg)); diff != "" {
			t.Errorf("%s: what others wrote: -want, +got:\n%s", mg.GetName(), diff)
		}
	}
}

// of returns what others wrote last to an object.
func (o *others) of(uid types.UID) map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()

	out := maps.Clone(o.wrote[uid])
	if out == nil {
		out = map[string]string{}
	}

	return out
}

func (o *others) note(mg sample.Instance, what, value string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.wrote[mg.GetUID()] == nil {
		o.wrote[mg.GetUID()] = map[string]string{}
	}

	o.wrote[mg.GetUID()][what] = value
}

// write to random objects, all writers at the same time. It returns when all have
// written.
func (o *others) write(t *testing.T) {
	t.Helper()

	var wg sync.WaitGroup

	for w := range stressWriters {
		for n, write := range []func(ctx context.Context, mg sample.Instance, writer int, value int64) error{o.condition, o.annotation, o.spec} {
			pick := rand.New(rand.NewPCG(o.seed, uint64(10*w+n)))

			wg.Go(func() {
				for range stressWrites {
					mg := o.fleet[pick.IntN(len(o.fleet))]
					err := client.IgnoreNotFound(write(t.Context(), mg, w, 1+pick.Int64N(1e6)))
					if err != nil {
						t.Errorf("cannot write to %s: %v", mg.GetName(), err)
						return
					}
				}
			})
		}
	}

	wg.Wait()
}

func (o *others) condition(ctx context.Context, mg sample.Instance, writer int, value int64) error {
	for {
		got, err := o.get(ctx, mg)
		if err != nil {
			return err
		}

		ct := fmt.Sprintf("Other%d", writer)
		got.SetConditions(xpv2.Condition{
			Type:               xpv2.ConditionType(ct),
			Status:             corev1.ConditionTrue,
			Reason:             "Written",
			Message:            fmt.Sprint(value),
			LastTransitionTime: metav1.Now(),
		})

		err = o.server.Status().Update(ctx, got)
		if kerrors.IsConflict(err) {
			continue
		}

		if err == nil {
			o.note(got, ct, fmt.Sprint(value))
		}

		return err
	}
}

func (o *others) annotation(ctx context.Context, mg sample.Instance, writer int, value int64) error {
	got, err := o.get(ctx, mg)
	if err != nil {
		return err
	}

	key := fmt.Sprintf("example.org/other-%d", writer)

	err = o.server.Patch(ctx, got, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, key, value)))
	if err == nil {
		o.note(got, key, fmt.Sprint(value))
	}

	return err
}

func (o *others) spec(ctx context.Context, mg sample.Instance, _ int, value int64) error {
	got, err := o.get(ctx, mg)
	if err != nil {
		return err
	}

	return o.server.Patch(ctx, got, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"forProvider":{"size":%d}}}`, value)))
}

func (o *others) get(ctx context.Context, mg sample.Instance) (sample.Instance, error) {
	got, ok := mg.DeepCopyObject().(sample.Instance)
	if !ok {
		return nil, fmt.Errorf("%T is not the sample's", mg)
	}

	return got, o.server.Get(ctx, client.ObjectKeyFromObject(mg), got)
}

// foreign returns what others wrote to an object.
func foreign(mg sample.Instance) map[string]string {
	out := map[string]string{}

	for w := range stressWriters {
		ct, key := fmt.Sprintf("Other%d", w), fmt.Sprintf("example.org/other-%d", w)

		if c := mg.GetCondition(xpv2.ConditionType(ct)); c.Status == corev1.ConditionTrue {
			out[ct] = c.Message
		}

		if v, ok := mg.GetAnnotations()[key]; ok {
			out[key] = v
		}
	}

	return out
}
