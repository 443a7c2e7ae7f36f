package watch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An object that was replaced by one of the same name is delivered as deleted, and the
// other one as created, however an informer reports it. Nothing is left of a delivery.
func TestFan_ReplacedObject(t *testing.T) {
	was := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "old"}}
	is := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "new"}}
	cases := map[string]struct {
		reason  string
		report  func(f *fan, t *tap)
		initial bool
	}{
		"Updated": {
			reason: "The informer missed the deletion.",
			report: func(_ *fan, t *tap) { t.OnUpdate(was, is) },
		},
		"AnotherInformer": {
			reason:  "It was deleted between two informers. The earlier one isn't listened to.",
			report:  func(f *fan, t *tap) { f.listen().OnAdd(is, true); t.OnDelete(is) },
			initial: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []delivery
			var last context.Context
			var wg sync.WaitGroup
			with := &dispatcher{ctx: t.Context(), run: wg.Go, delivered: newKindSet(nil).delivered}
			f := newFan()
			first := f.listen()
			first.OnAdd(was, true)
			f.attach(newSubscription(func(ctx context.Context, d delivery) { last, got = ctx, append(got, d) }, with))
			tc.report(f, first)
			wg.Wait()
			want := []delivery{
				{op: created, object: was, initial: true},
				{op: deleted, object: was, unseen: true},
				{op: created, object: is, initial: tc.initial},
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(delivery{})); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if last.Err() == nil {
				t.Errorf("\n%s\nthe context of a delivery doesn't end", tc.reason)
			}
		})
	}
}

// Callers go on using the object that they asked with.
func TestExampleIsACopy(t *testing.T) {
	o := &corev1.ConfigMap{}
	if exampleOf(kindID{as: typed}, o) == client.Object(o) {
		t.Error("a kind keeps the object that it was asked for with")
	}
}

// A watch is stopped, and what it has left to say has a receiver.
func TestDrainedWatch(t *testing.T) {
	w := apiwatch.NewFake()
	k := newKind(newKindSet(nil), kindID{}, nil)
	d := &drainedWatch{Interface: w, part: &part{informer: &opened{kind: k}}}
	d.Stop()
	d.Stop()
	if !w.IsStopped() {
		t.Fatal("the watch isn't stopped")
	}
	k.set.wg.Wait()
}

// scriptedInformers answer a call that waits when they are told to.
type scriptedInformers struct {
	cache.Informers

	answer chan struct{}
	calls  []string
}

func (s *scriptedInformers) GetInformer(_ context.Context, _ client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	o := &cache.InformerGetOptions{}
	for _, fn := range opts {
		fn(o)
	}
	if *o.BlockUntilSynced {
		<-s.answer
		s.calls = append(s.calls, "answered")
		return nil, errors.New("boom")
	}
	return runningInformer{}, nil
}

func (s *scriptedInformers) RemoveInformer(context.Context, client.Object) error {
	s.calls = append(s.calls, "removed")
	return nil
}

type runningInformer struct{ cache.Informer }

func (runningInformer) IsStopped() bool { return false }
func (runningInformer) HasSynced() bool { return false }

// An informer of another cache is removed after the last question about it was
// answered, since a question would make another one.
func TestWrapped_RemovesAfterTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		infs := &scriptedInformers{answer: make(chan struct{})}
		var wg sync.WaitGroup
		w := &wrapped{Informers: infs}
		o, err := w.open(t.Context(), newKind(newKindSet(nil), kindID{as: metadata}, &metav1.PartialObjectMetadata{}), nil)
		if err != nil {
			t.Fatal(err)
		}
		o.start()
		wg.Go(o.close)
		synctest.Wait()
		close(infs.answer)
		wg.Wait()
		if diff := cmp.Diff([]string{"answered", "removed"}, infs.calls); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
	})
}
