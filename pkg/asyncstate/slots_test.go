package asyncstate_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A fastAPI has annotations of Buckets, and nothing else, so that there can be very
// many of them.
type fastAPI struct {
	client.Client

	mu      sync.Mutex
	buckets map[client.ObjectKey]*testkit.Bucket
	writes  int
}

func newFastAPI() *fastAPI { return &fastAPI{buckets: map[client.ObjectKey]*testkit.Bucket{}} }

func (a *fastAPI) add(name string) *testkit.Bucket {
	b := bucket(name)
	b.SetUID(types.UID("uid-" + name))
	b.SetResourceVersion("1")

	a.mu.Lock()
	defer a.mu.Unlock()

	a.buckets[client.ObjectKeyFromObject(b)] = b

	return b
}

func (a *fastAPI) read(name string) *testkit.Bucket {
	b := &testkit.Bucket{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_ = a.Get(context.Background(), key(name), b)

	return b
}

func (a *fastAPI) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	delete(a.buckets, key(name))
}

func (a *fastAPI) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()

	had, ok := a.buckets[k]
	if !ok {
		return kerrors.NewNotFound(schema.GroupResource{Resource: "buckets"}, k.Name)
	}

	b, ok := o.(*testkit.Bucket)
	c, ok2 := had.DeepCopyObject().(*testkit.Bucket)

	if ok && ok2 {
		*b = *c
	}

	return nil
}

func (a *fastAPI) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}

	body := struct {
		Metadata struct {
			UID             types.UID          `json:"uid"`
			ResourceVersion string             `json:"resourceVersion"`
			Annotations     map[string]*string `json:"annotations"`
		} `json:"metadata"`
	}{}
	if err := json.Unmarshal(data, &body); err != nil {
		return err
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	b, ok := a.buckets[client.ObjectKeyFromObject(o)]

	switch {
	case !ok:
		return kerrors.NewNotFound(schema.GroupResource{Resource: "buckets"}, o.GetName())
	case b.GetResourceVersion() != body.Metadata.ResourceVersion, b.GetUID() != body.Metadata.UID:
		return kerrors.NewConflict(schema.GroupResource{Resource: "buckets"}, o.GetName(), nil)
	}

	for k, v := range body.Metadata.Annotations {
		if v == nil {
			meta.RemoveAnnotations(b, k)
		} else {
			meta.AddAnnotations(b, map[string]string{k: *v})
		}
	}

	a.writes++

	var n int

	_, _ = fmt.Sscan(b.GetResourceVersion(), &n)
	b.SetResourceVersion(fmt.Sprint(n + 1))

	if to, ok := o.(*testkit.Bucket); ok {
		if c, ok := b.DeepCopyObject().(*testkit.Bucket); ok {
			*to = *c
		}
	}

	return nil
}

// reconcileDirectly does what upstream's reconciler does, as far as operations are
// concerned. It says whether one was begun.
func reconcileDirectly(ctx context.Context, c upstream.ExternalConnector, mg resource.Managed) (bool, error) {
	ec, err := c.Connect(ctx, mg)
	if err != nil {
		return false, err
	}

	defer func() { _ = ec.Disconnect(ctx) }()

	o, err := ec.Observe(ctx, mg)
	if err != nil || o.ResourceExists {
		return false, err
	}

	_, err = ec.Create(ctx, mg)

	return err == nil, err
}

// Very many objects want an operation at once.
func TestManyObjects(t *testing.T) {
	const (
		objects = 10_000
		most    = 100
	)

	synctest.Test(t, func(t *testing.T) {
		a, c := newFastAPI(), newCloud()
		c.takes = time.Minute
		tr := asyncstate.NewTracker(a, asyncstate.WithMaxOperations(most))
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		ctx, cancel := context.WithCancel(context.Background())

		defer cancel()

		if err := tr.Source().Start(ctx, q); err != nil {
			t.Fatal(err)
		}

		for i := range objects {
			b := a.add(fmt.Sprintf("b-%d", i))
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}

		conn := asyncstate.Connector(c.connector(nothing, func() bool { return false }), tr)
		reconciles := 0

		var order []string

		done := make(chan struct{})

		go func() {
			defer close(done)

			for {
				req, down := q.Get()
				if down {
					return
				}

				reconciles++

				if b := a.read(req.Name); b.GetUID() != "" {
					begun, err := reconcileDirectly(ctx, conn, b)
					if err != nil {
						t.Error(err)
					}

					if begun {
						order = append(order, req.Name)
					}
				}

				q.Done(req)
			}
		}()

		begun := time.Now()

		// Some go while they wait.
		pass(30 * time.Second)

		for i := 5000; i < 5100; i++ {
			a.remove(fmt.Sprintf("b-%d", i))
		}

		for c.count(asyncstate.Create) < objects-100 && time.Since(begun) < 10*time.Hour {
			pass(time.Minute)
		}

		pass(2 * time.Minute)

		if d := time.Since(begun); d > 110*time.Minute {
			t.Errorf("%d operations of a minute, %d at once, took %s", objects, most, d)
		}

		if c.most != most {
			t.Errorf("%d ran at once, want %d", c.most, most)
		}

		if len(c.names()) != objects-100 {
			t.Errorf("%d were made", len(c.names()))
		}

		if reconciles > 4*objects {
			t.Errorf("%d reconciles of %d objects", reconciles, objects)
		}

		for i, name := range order[:4000] {
			if name != fmt.Sprintf("b-%d", i) {
				t.Errorf("%s began as number %d: it was overtaken, or has overtaken", name, i)
				break
			}
		}

		// Connection details, which upstream's reconciler says nothing of.
		pass(2 * time.Hour)

		if n := asyncstate.Remembered(tr); n != 0 {
			t.Errorf("%d things are remembered", n)
		}

		q.ShutDown()
		<-done
	})
}

// Those whose turn it is don't come, since they are gone, or come too late.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nothing, bucket("first"), bucket("gone"), bucket("second"), bucket("third"))
		w.manual = true
		w.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1)}
		p := w.start()
		defer w.end()

		for _, name := range []string{"first", "gone", "second"} {
			reconciled(t, p, name)
		}

		if got := condition(w.get("second"), asyncstate.TypeOperation); got != "False Queued: Waiting for operations of other objects to end." {
			t.Error(got)
		}

		w.edit("gone", func(b *testkit.Bucket) { b.SetFinalizers(nil) })
		w.delete("gone")
		pass(10*time.Minute + 10*time.Second)

		// It is not its turn, but no other object takes it.
		reconciled(t, p, "third")

		if got := reason(w.get("third"), asyncstate.TypeOperation); got != asyncstate.ReasonQueued {
			t.Errorf("It has overtaken others: %s", describe(w.get("third")))
		}

		pass(time.Minute)
		reconciled(t, p, "third")

		if got := reason(w.get("third"), asyncstate.TypeOperation); got != asyncstate.ReasonRunning {
			t.Errorf("No other object wants it: %s", describe(w.get("third")))
		}

		pass(11 * time.Minute)
		reconciled(t, p, "second")
		pass(11 * time.Minute)
		reconciled(t, p, "second")

		for _, name := range []string{"first", "third"} {
			reconciled(t, p, name)
		}

		if n := w.cloud.made[string(w.get("second").GetUID())]; n != 1 || asyncstate.Remembered(p.tracker) != 0 {
			t.Errorf("%d made, %d things are remembered: %s", n, asyncstate.Remembered(p.tracker), describe(w.get("second")))
		}
	})
}

// Creates that hang hold up no deletions.
func TestSlots_DeletionsHaveTheirOwn(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   clientKind

		// The operation of b that is interrupted before b is deleted, if it is not
		// empty.
		interrupted asyncstate.Type
	}{
		"Delete":         {reason: "What was created before the others hang is deleted.", kind: nothing},
		"RepeatedCreate": {reason: "An interrupted create is repeated to find out what to delete.", kind: token, interrupted: asyncstate.Create},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.kind, bucket("b"))
				w.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1), asyncstate.WithTimeout(12 * time.Hour)}
				p := w.start()
				defer w.end()

				if tc.interrupted == "" {
					pass(11 * time.Minute)
				} else {
					pass(6 * time.Minute)
				}

				p.kill()

				if tc.interrupted != "" {
					w.delete("b")
				}

				w.connector = func(p *process) upstream.ExternalConnector {
					return upstream.ExternalConnectorFn(func(_ context.Context, mg resource.Managed) (upstream.ExternalClient, error) {
						c := w.cloud.client(tc.kind, p.dead.Load)
						if mg.GetName() == "b" {
							return c, nil
						}

						return hanging{c}, nil
					})
				}

				for _, name := range []string{"hangs", "waits"} {
					if err := w.api.Server().Create(t.Context(), bucket(name)); err != nil {
						t.Fatal(err)
					}
				}

				w.start()
				pass(time.Second)
				w.delete("b")
				pass(time.Hour)

				if !w.gone() || len(w.cloud.ownedBy("uid-1")) != 0 {
					t.Errorf("\n%s\n%s", tc.reason, describe(w.get("b")))
				}

				if a, b := reason(w.get("hangs"), asyncstate.TypeOperation), reason(w.get("waits"), asyncstate.TypeOperation); a == b {
					t.Errorf("\n%s\nBoth others say %s", tc.reason, a)
				}
			})
		})
	}
}

// A hanging client's Create returns when it is cancelled.
type hanging struct{ upstream.ExternalClient }

func (hanging) Create(ctx context.Context, _ resource.Managed) (upstream.ExternalCreation, error) {
	<-ctx.Done()
	return upstream.ExternalCreation{}, ctx.Err()
}
