package watch

import (
	"context"
	"encoding/json"
	stderrors "errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/watchtest"
)

// A look-up isn't answered from before it was asked for.
func TestLookUps_AreFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := watchtest.NewKind("First"), watchtest.NewKind("Second")
		second.GVK.Group = first.GVK.Group
		api := watchtest.NewAPI(first)
		hc, err := rest.HTTPClientFor(api.Config())
		if err != nil {
			t.Fatal(err)
		}
		res, err := newResolver(t.Context(), api.Config(), hc)
		if err != nil {
			t.Fatal(err)
		}
		resolve := func(ctx context.Context, gvk schema.GroupVersionKind) <-chan error {
			ch := make(chan error, 1)
			go func() {
				_, err := res.resolve(ctx, gvk)
				ch <- err
			}()
			return ch
		}
		settle := func() {
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		before, err := json.Marshal(metav1.APIResourceList{
			TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList"},
			GroupVersion: first.GVK.GroupVersion().String(),
			APIResources: []metav1.APIResource{{
				Name: first.Plural, Kind: first.GVK.Kind, Namespaced: true, Verbs: metav1.Verbs{"list", "watch"},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		lift := api.Inject(
			watchtest.DiscoveryOf(first), watchtest.Answer(http.StatusOK, string(before)).After(time.Second),
		)
		early := resolve(t.Context(), first.GVK)
		settle()
		lift()

		// One that gives up takes none of those with it that wait for the same answer.
		gone, cancel := context.WithCancel(t.Context())
		given := resolve(gone, second.GVK)
		settle()
		api.Define(second)
		late := resolve(t.Context(), second.GVK)
		settle()
		cancel()
		if err := <-given; !errors.Is(err, context.Canceled) {
			t.Errorf("resolve(...) with a context that ended: %v", err)
		}
		if err := stderrors.Join(<-early, <-late); err != nil {
			t.Errorf("resolve(...) of kinds that are served: %v", err)
		}
	})
}

// An informer that was replaced doesn't have all objects.
func TestBroadcaster_SettlesForTheCurrentInformer(t *testing.T) {
	b := newBroadcaster()
	newHandler := func() *informerHandler { return newInformerHandler(b, false, func() {}) }
	first, second := newHandler(), newHandler()
	b.follow(first)
	first.OnAdd(&corev1.ConfigMap{}, true)
	gone := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "gone"}}
	first.OnAdd(gone, true)
	first.OnDelete(gone)
	b.settle(first)
	b.follow(second)
	b.follow(nil)
	b.settle(second)
	if n, _ := b.counts(); n != 1 {
		t.Errorf("%d objects are known; want the one that another informer may have, and not the deleted one", n)
	}
}

// RemoveInformer may come between two steps of the kind's goroutine.
func TestSession_IgnoresAStoppedInformer(t *testing.T) {
	m := newKindMap(runtime.NewScheme())
	k, err := m.get(kindKey{as: asTyped}, &corev1.ConfigMap{}, func(*kind) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &session{kind: k, ctx: ctx, informer: &informer{}, syncedAt: time.Now()}
	assess := func() *informer {
		if _, err := s.assess(); err != nil {
			t.Error(err)
		}
		return k.status.Load().informer
	}
	if assess() == nil {
		t.Error("an informer that has synced doesn't serve reads")
	}
	k.replaceInformer()
	cancel()
	if assess() != nil {
		t.Error("an informer that was stopped serves reads")
	}
	if _, err := s.kind.lookUp(s.ctx); !errors.Is(err, context.Canceled) || k.last.epoch == k.epoch {
		t.Errorf("a look-up for an informer that was stopped takes the place of the next one: %v", err)
	}
}

// Callers go on using the object that they asked with.
func TestObjectForIsACopy(t *testing.T) {
	o := &corev1.ConfigMap{}
	if objectFor(kindKey{as: asTyped}, o) == client.Object(o) {
		t.Error("a kind keeps the object that it was asked for with")
	}
}
