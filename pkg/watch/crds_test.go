package watch

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A CRD that was replaced while nobody looked is delivered as deleted, and then as
// created. Which of the two a kind hears of before it acts is chance, so this looks
// at it between them.
func TestReplacedCRD(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}

	crd := func(uid types.UID, kind, version string, is extv1.ConditionStatus) *extv1.CustomResourceDefinition {
		return &extv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.org", UID: uid},
			Spec: extv1.CustomResourceDefinitionSpec{
				Group:    gvk.Group,
				Names:    extv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: kind},
				Scope:    extv1.NamespaceScoped,
				Versions: []extv1.CustomResourceDefinitionVersion{{Name: version, Served: true}},
			},
			Status: extv1.CustomResourceDefinitionStatus{
				Conditions: []extv1.CustomResourceDefinitionCondition{{Type: extv1.Established, Status: is}},
			},
		}
	}

	type want struct {
		State   State
		Objects int
	}

	cases := map[string]struct {
		reason string
		next   client.Object
		want   want
	}{
		"Same": {
			reason: "The kind is there. Its informer may have found new objects, so nothing is gone until the next one says so.",
			next:   crd("new", "Widget", "v1", extv1.ConditionTrue),
			want:   want{State: StateActive, Objects: 1},
		},
		"NotEstablished": {
			reason: "Nothing serves the kind yet.",
			next:   crd("new", "Widget", "v1", extv1.ConditionFalse),
			want:   want{State: StateDormant},
		},
		"AnotherVersion": {
			reason: "Nothing serves the kind in this version any more.",
			next:   crd("new", "Widget", "v2", extv1.ConditionTrue),
			want:   want{State: StateDormant},
		},
		"AnotherKind": {
			reason: "The name is another kind's now.",
			next:   crd("new", "Gadget", "v1", extv1.ConditionTrue),
			want:   want{State: StateDormant},
		},
		"Gone": {
			reason: "Nothing came after it.",
			want:   want{State: StateDormant},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newKindSet(nil)
			defer s.cancel()

			was := crd("old", "Widget", "v1", extv1.ConditionTrue)
			k := newKind(s, kindID{GroupVersionKind: gvk, as: metadata}, &metav1.PartialObjectMetadata{})
			k.state = StateActive
			s.kinds[k.id] = k

			w := &crdWatcher{set: s}
			w.deliver(delivery{op: created, object: was})

			tap := k.fan.begin(1)
			tap.OnAdd(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "found"}}, true)

			k.state = StateActive
			w.deliver(delivery{op: deleted, object: was, unseen: true, successor: tc.next})

			if diff := cmp.Diff(tc.want, want{State: k.state, Objects: k.fan.objects()}); diff != "" {
				t.Errorf("\n%s\nafter the CRD's deletion: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}

	t.Run("Reopened", func(t *testing.T) {
		s := newKindSet(nil)
		defer s.cancel()

		was, next := crd("old", "Widget", "v1", extv1.ConditionTrue), crd("new", "Widget", "v1", extv1.ConditionTrue)
		k := newKind(s, kindID{GroupVersionKind: gvk, as: metadata}, &metav1.PartialObjectMetadata{})
		s.kinds[k.id] = k
		w := &crdWatcher{set: s}

		w.deliver(delivery{op: created, object: was})

		k.current.Store(&opened{})
		w.deliver(delivery{op: deleted, object: was, unseen: true, successor: next})

		if k.order != carryOn {
			t.Errorf("the informer was told to go (%d) before it is known what is there", k.order)
		}

		w.deliver(delivery{op: created, object: next})

		if k.order != reopen {
			t.Errorf("the informer of a kind that was replaced stays: %d", k.order)
		}
	})
}

// What went and what has its name now are delivered one after the other, however
// an informer tells of it.
func TestSuccessor(t *testing.T) {
	was := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "old"}}
	is := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "new"}}

	cases := map[string]struct {
		reason  string
		tell    func(f *fan)
		initial bool
	}{
		"Updated": {
			reason: "The informer missed the deletion.",
			tell:   func(f *fan) { f.begin(1).OnUpdate(was, is) },
		},
		"AnotherInformer": {
			reason:  "It was deleted between two informers.",
			tell:    func(f *fan) { f.begin(2).OnAdd(is, true) },
			initial: true,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var (
				got   deliveries
				group sync.WaitGroup
				total atomic.Uint64
			)

			f := newFan()
			f.begin(1).OnAdd(was, true)

			f.attach(newSubscription(&got, &group, &total))
			tc.tell(f)
			group.Wait()

			want := deliveries{
				{op: created, object: was, initial: true},
				{op: deleted, object: was, unseen: true, successor: is},
				{op: created, object: is, initial: tc.initial},
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(delivery{})); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

type deliveries []delivery

func (d *deliveries) deliver(one delivery) { *d = append(*d, one) }
