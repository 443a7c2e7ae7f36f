package watchtest

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An API is an API server in memory. Its methods are safe for concurrent use,
// and what they do is done when they return: a kind that Undefine forgot is not
// served any more, and its watches have been told to end.
type API struct {
	mu sync.Mutex

	// changed is closed, and replaced, whenever objects, kinds or faults change, and arrived
	// whenever a request arrives or ends.
	changed, arrived chan struct{}

	// version is the resource version of the last change.
	version int64

	// uids counts the objects that were ever created.
	uids int64

	// served kinds by resource.
	served map[schema.GroupVersionResource]*storage

	faults  []*injected
	streams map[*stream]struct{}
	pending map[*Request]struct{}
	log     []Request
}

// storage holds the objects of a served kind.
type storage struct {
	kind    Kind
	objects map[types.NamespacedName]*unstructured.Unstructured

	// events since the kind is served, oldest first.
	events []storedEvent

	// compacted is the version up to which events have been forgotten.
	compacted int64
}

type storedEvent struct {
	version int64
	kind    apiwatch.EventType
	object  *unstructured.Unstructured
}

// NewAPI returns an API that serves definitions, config maps and the given
// kinds.
func NewAPI(kinds ...Kind) *API {
	a := &API{
		changed: make(chan struct{}),
		arrived: make(chan struct{}),
		served:  make(map[schema.GroupVersionResource]*storage),
		streams: make(map[*stream]struct{}),
		pending: make(map[*Request]struct{}),
	}
	a.serve(CRD())
	a.serve(ConfigMap())
	for _, k := range kinds {
		a.Define(k)
	}
	return a
}

// Announce stores the definition of a kind that isn't established yet: nothing
// serves it.
func (a *API) Announce(k Kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(a.served[CRD().GVR()], k.Definition(false, true))
}

// Define stores the established definition of a kind, and serves it. A kind that
// is served keeps its objects.
func (a *API) Define(k Kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.served[k.GVR()] == nil {
		a.serve(k)
	}
	a.put(a.served[CRD().GVR()], k.Definition(true, true))
}

// Undefine deletes a kind with all its objects, and then its definition, as an
// API server does: watches see the deletions, then they end.
func (a *API) Undefine(k Kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unserve(k)
	a.remove(a.served[CRD().GVR()], types.NamespacedName{Name: k.CRDName()})
}

// Unserve stops to serve the version of the kind. The definition stays, with
// the version marked as not served; its objects go.
func (a *API) Unserve(k Kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unserve(k)
	a.put(a.served[CRD().GVR()], k.Definition(true, false))
}

// Replace deletes a kind and defines another in one step. A watch of definitions
// that is disconnected meanwhile sees one of the same name as a mere update.
func (a *API) Replace(old, k Kind) {
	cut := a.Inject(Of(CRD()), Hang())
	defer cut()

	// The watch must miss the deletion: what it has not sent yet, it never does.
	a.Disconnect(Of(CRD()))
	a.Undefine(old)
	a.Define(k)
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.served[CRD().GVR()]
	s.events, s.compacted = nil, a.version
}

// Put creates the object, or updates it if it is there, and returns what is
// stored. Tests that put an object of a kind that isn't served have a bug, so it
// panics then.
func (a *API) Put(obj *unstructured.Unstructured, k Kind) *unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.served[k.GVR()]
	if s == nil {
		panic(fmt.Sprintf("watchtest: %s isn't served", k.GVR()))
	}
	return a.put(s, obj).DeepCopy()
}

// Remove deletes the object, if it is there.
func (a *API) Remove(k Kind, key client.ObjectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.served[k.GVR()]; s != nil {
		a.remove(s, key)
	}
}

// Objects returns the stored objects of a kind, by name.
func (a *API) Objects(k Kind) map[types.NamespacedName]*unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.served[k.GVR()]
	if s == nil {
		return nil
	}
	return maps.Clone(s.objects)
}

// Compact forgets events: a watch that asks for older ones is told that they are
// expired.
func (a *API) Compact(k Kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.served[k.GVR()]; s != nil {
		s.events, s.compacted = nil, a.version
	}
}

// Requests returns the requests that arrived and match, oldest first.
func (a *API) Requests(m Match) []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Request
	for _, r := range a.log {
		if m(r) {
			out = append(out, r)
		}
	}
	return out
}

// Open returns how many matching requests have not been answered to the end:
// open watches, and whatever hangs.
func (a *API) Open(m Match) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for r := range a.pending {
		if m(*r) {
			n++
		}
	}
	return n
}

// AwaitOpen waits until a matching request is open.
func (a *API) AwaitOpen(ctx context.Context, m Match) error {
	for {
		a.mu.Lock()
		arrived := a.arrived
		a.mu.Unlock()
		if a.Open(m) > 0 {
			return nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// change tells watches. The lock must be held.
func (a *API) change() { wake(&a.changed) }

// wake closes and replaces a channel. The lock must be held.
func wake(ch *chan struct{}) {
	close(*ch)
	*ch = make(chan struct{})
}

// serve serves a kind. The lock must be held, or the API be unknown to others.
func (a *API) serve(k Kind) {
	a.served[k.GVR()] = &storage{
		kind:      k,
		objects:   make(map[types.NamespacedName]*unstructured.Unstructured),
		compacted: a.version,
	}
}

// unserve deletes all objects of a kind and stops to serve it. The lock must be
// held.
func (a *API) unserve(k Kind) {
	s := a.served[k.GVR()]
	if s == nil {
		return
	}
	for _, o := range s.sorted("") {
		a.remove(s, client.ObjectKeyFromObject(o))
	}
	delete(a.served, k.GVR())
	a.change()
}

// put stores an object. The lock must be held.
func (a *API) put(s *storage, obj *unstructured.Unstructured) *unstructured.Unstructured {
	a.version++
	o := obj.DeepCopy()
	o.SetGroupVersionKind(s.kind.GVK)
	o.SetResourceVersion(strconv.FormatInt(a.version, 10))
	key := client.ObjectKeyFromObject(o)
	event := apiwatch.Modified
	old := s.objects[key]
	if old == nil {
		event = apiwatch.Added
		a.uids++
		o.SetUID(types.UID("uid-" + strconv.FormatInt(a.uids, 10)))
		o.SetGeneration(1)
		if ts := o.GetCreationTimestamp(); ts.IsZero() {
			o.SetCreationTimestamp(metav1.Now())
		}
	} else {
		o.SetUID(old.GetUID())
		o.SetCreationTimestamp(old.GetCreationTimestamp())
		o.SetGeneration(old.GetGeneration() + 1)
	}
	s.objects[key] = o
	s.events = append(s.events, storedEvent{version: a.version, kind: event, object: o})
	a.change()
	return o
}

// remove deletes an object. The lock must be held.
func (a *API) remove(s *storage, key types.NamespacedName) {
	o := s.objects[key]
	if o == nil {
		return
	}
	a.version++
	last := o.DeepCopy()
	last.SetResourceVersion(strconv.FormatInt(a.version, 10))
	delete(s.objects, key)
	s.events = append(s.events, storedEvent{version: a.version, kind: apiwatch.Deleted, object: last})
	a.change()
}

// Forget which requests arrived. Those that are open stay open.
func (a *API) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log = nil
}
