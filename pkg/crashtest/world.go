package crashtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
)

// A world is the environment of one life: an API server, an external system, a user, and
// the processes of a provider. All of it is in one bubble of synctest.
type world struct {
	subject *subject
	kind    schema.GroupVersionKind
	plan    plan
	rand    *rand.Rand

	// calm is the finding of the same life without any fault, if it is known. last reports whether the act is the
	// last one.
	calm *finding
	last bool

	// beats counts what happened. It is read from outside the bubble.
	beats *atomic.Int64

	// actions counts the actions of the schedule.
	actions atomic.Int64

	server    *embedded.Server
	cloud     Cloud
	user      *User
	predicate predicate.Predicate
	timeline  *timeline
	began     time.Time

	processes   []*Process
	arrivals    []arrival
	retirements []retirement
	restarts    []time.Time
	releases    []release

	// wants are for the managed resource and for the other one.
	wants     [2]want
	abandoned string
	waitUntil time.Time

	// denied reports whether the external system refuses each call. The API server is away until awayUntil.
	denied    bool
	awayUntil time.Time

	// steps since the first act. admitted steps, and reconciles so far.
	steps      []step
	admitted   int
	reconciles int
	panics     []string

	// restless says when the provider did not come to rest after an act, and is empty if it
	// always did.
	restless string

	// failure is the error of the last reconcile, called says that a call was a step.
	failure string
	called  bool

	// edited is the first change of the managed resource that has to show in the external
	// system.
	edited *edit

	// seen are the objects as the watch delivered them, shape describes all that may
	// change, changed is when it did.
	seen    [2]client.Object
	shape   string
	changed time.Time

	// reconcilesChanged is how many reconciles there had been then, reconcilesStruck how
	// many before the last fault.
	reconcilesChanged, reconcilesStruck int

	// vain counts the calls since the last change that should change something, repeats the reconciles
	// since then or since the user had waited.
	vain    map[vainCall]int
	repeats map[repeat]int

	woken chan struct{}
	over  chan struct{}

	mu      sync.Mutex
	waiting []*ticket
	touched bool
	broken  error
	kinds   map[schema.GroupVersionKind]bool

	// pending are the acts that happen during calls, calling says that one does.
	pending []func() error
	calling bool

	// guarded resources have to stay as they are, kept ones have to stay because the
	// managed resource's policies say so. violations are those that didn't.
	guards     map[string]string
	kept       map[string]bool
	violations []Violation

	// foreign is how many resources existed before the life, excused how many were
	// created again by a call of a dead process.
	foreign, excused int
}

// A want is the state in which the user wants a managed resource.
type want struct {
	// exists says that the user created it, gone that the user deleted it.
	exists, gone bool

	// any state is right.
	any bool

	// paused says that nothing may change, finishes that the calls of a reconcile that had
	// begun before may.
	paused, finishes bool
}

// A repeat is an object that a process reconciles.
type repeat struct {
	process int
	key     types.NamespacedName
}

// An edit is a change of a managed resource: the state of its external resource and its
// spec before.
type edit struct {
	state string
	spec  map[string]any
}

func newWorld(s *subject, p plan, seed uint64, beats *atomic.Int64, tl *timeline) (*world, error) {
	gvk, err := apiutil.GVKForObject(s.object, s.scheme)
	if err != nil {
		return nil, err
	}
	scheme := copyScheme(s.scheme)
	beside := make([]client.Object, 0, len(s.beside))

	for _, o := range s.beside {
		c, _ := o.DeepCopyObject().(client.Object)
		if c.GetUID() == "" {
			c.SetUID(types.UID("beside-" + c.GetName()))
		}
		beside = append(beside, c)
	}
	server, err := embedded.New(embedded.Options{Scheme: scheme, CRDs: s.crds, Objects: beside})
	if err != nil {
		return nil, errors.Wrap(err, "crashtest: cannot start the API server")
	}
	cloud, err := s.newCloud()
	if err != nil {
		return nil, err
	}
	w := &world{
		subject: s, kind: gvk, plan: p,
		rand:      rand.New(rand.NewPCG(seed, seed)), //nolint:gosec // The same seed has to lead the same life.
		beats:     beats,
		server:    server,
		cloud:     cloud,
		predicate: xpresource.DesiredStateChanged(),
		timeline:  tl,
		began:     time.Now(),
		woken:     make(chan struct{}, 1),
		over:      make(chan struct{}),
		kinds:     map[schema.GroupVersionKind]bool{},
		kept:      map[string]bool{},
		vain:      map[vainCall]int{},
		repeats:   map[repeat]int{},
	}
	w.user = &User{world: w}
	w.guards = w.snapshot().exists
	w.foreign = len(cloud.Made())
	return w, nil
}

// end the world. Goroutines that wait for their turn end. The others get a day of simulated
// time to notice that their context has ended.
func (w *world) end() {
	for _, p := range w.processes {
		p.cancel()
	}
	close(w.over)
	time.Sleep(24 * time.Hour)
}

// start a process.
func (w *world) start() {
	p := &Process{
		id:     len(w.processes) + 1,
		world:  w,
		items:  map[types.NamespacedName]*item{},
		missed: map[types.NamespacedName]bool{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.live = interceptor.NewClient(w.server.Client(), embedded.Intercept(func(
		ctx context.Context, c embedded.Call, serve func() error,
	) error {
		return p.request(ctx, c, false, serve)
	}))
	p.manager = &processManager{Manager: w.server.ManagerFor(p.cached()), process: p}
	w.processes = append(w.processes, p)
	w.tracef(p, "starts")

	for i, o := range w.seen {
		if o != nil {
			p.add(w.key(i), 0)
		}
	}

	go func() {
		r, err := w.subject.start(p)
		p.locked(func() { p.reconciler, p.startErr, p.started = r, err, true })
		w.wake()
	}()
}

// replace a process that ends, unless another one has taken over.
func (w *world) replace() {
	if !slices.ContainsFunc(w.alive(), func(p *Process) bool { return !p.doomed && !p.stopped }) {
		w.start()
	}
}

// kill a process. It gets no answer to the requests that it waits for.
func (w *world) kill(p *Process) {
	p.locked(func() { p.dead = true })
	w.mu.Lock()
	w.waiting = slices.DeleteFunc(w.waiting, func(t *ticket) bool { return t.process == p })
	w.mu.Unlock()
	w.tracef(p, "is killed")
}

// retire stops a process as a signal does: it begins nothing new, and has some time left.
func (w *world) retire(p *Process) {
	p.locked(func() { p.stopped = true })
	w.tracef(p, "is asked to stop")
	p.cancel()
	w.retirements = append(w.retirements, retirement{at: time.Now().Add(graceFor), process: p})
}

// rest waits until no goroutine can continue without time passing or a ruling.
func (w *world) rest() { synctest.Wait() }

// alive returns the processes that are.
func (w *world) alive() []*Process {
	var out []*Process
	for _, p := range w.processes {
		if !p.isDead() {
			out = append(out, p)
		}
	}
	return out
}

// A snapshot is the content of the external system.
type snapshot struct {
	made   int
	exists map[string]string
}

func (w *world) snapshot() snapshot {
	return snapshot{made: len(w.cloud.Made()), exists: maps.Clone(w.cloud.Exists())}
}

// changedBy records the effect of a step on the external system.
func (w *world) changedBy(t *ticket, before, after snapshot) {
	changed := before.made != after.made || !maps.Equal(before.exists, after.exists)
	own := ""
	if o := w.seen[0]; o != nil {
		own = w.subject.name(o)
	}
	w.mu.Lock()
	if t.number > 0 {
		s := &w.steps[t.number-1]
		s.done, s.write, s.creates = true, s.write || changed, after.made > before.made
	}
	if !changed {
		w.mu.Unlock()
		return
	}

	for name, state := range w.guards {
		got, ok := after.exists[name]
		switch {
		case !ok:
			w.violate(ActsOnAnothers, "step %q deleted external resource %q, which has to stay", t.step, name)
			delete(w.guards, name)
		case got != state:
			w.violate(
				ActsOnAnothers, "step %q changed external resource %q, which belongs to another owner", t.step, name,
			)
			delete(w.guards, name)
		}
	}

	for name := range w.kept {
		_, had := before.exists[name]
		if _, has := after.exists[name]; had && !has {
			w.violate(ActsOnAnothers, "step %q deleted external resource %q, which has to stay", t.step, name)
			delete(w.kept, name)
		}
	}

	// Of two managed resources, the other one may change its own.
	was, had := before.exists[own]
	is, has := after.exists[own]
	if o := w.wants[0]; o.paused && !o.finishes && (!w.wants[1].exists || was != is || had != has) {
		w.violate(ActsWhilePaused, "step %q changed the external system", t.step)
	}
	var act func() error
	if len(w.pending) > 0 {
		act, w.pending = w.pending[0], w.pending[1:]
	}
	w.mu.Unlock()

	if act != nil {
		w.calling = true
		err := act()
		w.calling = false
		if err != nil {
			w.breaks(err)
		}
	}
}

// violate needs the lock.
func (w *world) violate(v Verdict, format string, a ...any) {
	w.violations = append(w.violations, Violation{Verdict: v, Text: fmt.Sprintf(format, a...)})
}

// protect an external resource: it has to stay as it is.
func (w *world) protect(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if state, ok := w.cloud.Exists()[name]; ok {
		w.guards[name] = state
	}
}

// release an external resource from protection.
func (w *world) release(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.guards, name)
}

// breaks ends the run with an error.
func (w *world) breaks(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.broken = err
	}
}

func (w *world) touch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.touched = true
}

// key of the managed resource, or of the other one.
func (w *world) key(i int) types.NamespacedName {
	return client.ObjectKeyFromObject(w.blank(i))
}

// blank returns a managed resource as the user creates it.
func (w *world) blank(i int) client.Object {
	o, _ := w.subject.object.DeepCopyObject().(client.Object)
	if i > 0 {
		o.SetName(o.GetName() + another)
		ownSecret(o)
	}
	return o
}

// stored returns a managed resource as it is on the API server, or nil.
func (w *world) stored(i int) (client.Object, error) {
	o := w.blank(i)
	err := w.server.Admin().Get(context.Background(), w.key(i), o)
	if kerrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // Absence is an answer here, not an error.
	}
	return o, err
}

// nameOf returns the external name of a managed resource.
func (w *world) nameOf(i int) string {
	o, err := w.stored(i)
	if err != nil || o == nil {
		return ""
	}
	return w.subject.name(o)
}

// isObject reports whether an object is of the managed resource's kind.
func (w *world) isObject(o client.Object) bool {
	gvk, err := apiutil.GVKForObject(o, w.server.Scheme())
	return err == nil && gvk == w.kind
}

// isTyped reports whether a client reads an object from the cache by default.
func (w *world) isTyped(o runtime.Object) bool {
	_, is := o.(runtime.Unstructured)
	return !is
}

// load an object of the cache.
func (w *world) load(from client.Object, key client.ObjectKey, into client.Object) error {
	if from == nil {
		return kerrors.NewNotFound(schema.GroupResource{Group: w.kind.Group, Resource: w.kind.Kind}, key.Name)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from.DeepCopyObject())
	if err != nil {
		return err
	}
	gvk := into.GetObjectKind().GroupVersionKind()
	if err := decode(content, into); err != nil {
		return err
	}
	into.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

// describe returns the kind and name of the object of a request.
func (w *world) describe(c embedded.Call) (kind, name string) {
	gvk, err := apiutil.GVKForObject(c.Object, w.server.Scheme())
	if err != nil {
		return fmt.Sprintf("%T", c.Object), c.Key.Name
	}
	return gvk.Kind, c.Key.Name
}

// sawKind records that the provider writes objects of a kind.
func (w *world) sawKind(o runtime.Object) {
	if gvk, err := apiutil.GVKForObject(o, w.server.Scheme()); err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.kinds[gvk] = true
	}
}

// observe handles events, and starts and reconciles that ended.
func (w *world) observe() error {
	if err := w.watch(); err != nil {
		return err
	}
	w.mu.Lock()
	broken := w.broken
	w.mu.Unlock()
	if broken != nil {
		return broken
	}

	for _, p := range w.alive() {
		if err := w.started(p); err != nil {
			return err
		}
		p.collect(func(key types.NamespacedName, o *outcome) {
			w.reconciles++
			w.repeats[repeat{p.id, key}]++
			w.failure = ""
			if o.err != nil {
				w.failure = o.err.Error()
			}
			w.tracef(p, "%s %s", key.Name, o)
			if o.panicked {
				w.panics = append(w.panics, o.err.Error())
			}
		})
	}

	if time.Now().Before(w.waitUntil) {
		clear(w.repeats)
	}
	if shape := w.look(); shape != w.shape {
		w.shape, w.changed, w.reconcilesChanged = shape, time.Now(), w.reconciles
		clear(w.repeats)
		// The log-outs of sessions that are open are still to come.
		maps.DeleteFunc(w.vain, func(_ vainCall, n int) bool { return n >= 0 })
	}
	return nil
}

// started handles a start that has failed: a process that met an injected error starts
// again, as its Deployment has it.
func (w *world) started(p *Process) error {
	var err error
	var faulted bool
	p.locked(func() { err, faulted = p.startErr, p.faulted || p.stopped; p.startErr = nil })

	switch {
	case err == nil:
		return nil
	case !faulted:
		return err
	}
	w.tracef(p, "cannot start: %v", err)
	w.kill(p)
	w.restarts = append(w.restarts, time.Now().Add(restartAfter))
	return nil
}

// watch delivers events of the managed resources.
func (w *world) watch() error {
	w.mu.Lock()
	touched := w.touched
	w.touched = false
	w.mu.Unlock()
	if !touched {
		return nil
	}

	for i := range w.wants {
		if !w.wants[i].exists {
			continue
		}
		o, err := w.stored(i)
		if err != nil {
			return err
		}
		if w.delivers(w.seen[i], o) {
			for _, p := range w.alive() {
				p.informed(w.key(i))
			}
		}
		if w.foreignFinalizers(o) && !w.foreignFinalizers(w.seen[i]) {
			w.releases = append(w.releases, release{at: time.Now().Add(lagFor), object: i})
		}
		if had := w.seen[i]; had != nil && (o == nil || o.GetUID() != had.GetUID()) {
			w.collectGarbage(had.GetUID())
		}
		w.seen[i] = o
		w.keep(o)
	}
	return nil
}

// keep the external resource of a managed resource if its policies forbid to delete it.
func (w *world) keep(o client.Object) {
	if o == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name := w.subject.name(o)
	delete(w.kept, name)
	if name != "" && orphans(o) {
		w.kept[name] = true
	}
}

// delivers reports whether the watch of a provider delivers a change.
func (w *world) delivers(was, is client.Object) bool {
	switch {
	case was == nil && is == nil:
		return false
	case was == nil:
		return w.predicate.Create(event.CreateEvent{Object: is})
	case is == nil:
		return w.predicate.Delete(event.DeleteEvent{Object: was})
	case was.GetResourceVersion() == is.GetResourceVersion():
		return false
	default:
		return w.predicate.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is})
	}
}

// collectGarbage deletes the dependents of an owner that no longer exists.
func (w *world) collectGarbage(owner types.UID) {
	w.mu.Lock()
	kinds := slices.Collect(maps.Keys(w.kinds))
	w.mu.Unlock()

	for _, gvk := range kinds {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if w.server.Admin().List(context.Background(), l) != nil {
			continue
		}
		_ = meta.EachListItem(l, func(r runtime.Object) error {
			o, ok := r.(client.Object)
			owns := func(ref metav1.OwnerReference) bool { return ref.UID == owner }
			if ok && slices.ContainsFunc(o.GetOwnerReferences(), owns) && len(o.GetOwnerReferences()) == 1 {
				_ = w.server.Admin().Delete(context.Background(), o)
			}
			return nil
		})
	}
}

// look describes all that may change, in one text.
func (w *world) look() string {
	versions := [2]string{}
	for i, o := range w.seen {
		if o != nil {
			versions[i] = o.GetResourceVersion()
		}
	}
	s := w.snapshot()
	return fmt.Sprint(versions, s.made, s.exists)
}

// right reports whether each managed resource is as the user wants it.
func (w *world) right() bool {
	exists := w.cloud.Exists()
	for i := range w.wants {
		want, o := w.wants[i], w.seen[i]
		switch {
		case !want.exists, w.waits(i):
		case want.gone && o == nil:
		case want.gone, o == nil, !ready(o):
			return false
		default:
			if _, ok := exists[w.subject.name(o)]; !ok {
				return false
			}
		}
	}
	return true
}

// waits reports whether a managed resource need not be as the user wants it.
func (w *world) waits(i int) bool {
	want := w.wants[i]
	return want.any && !want.gone || want.paused || w.denied
}

// tracef adds an entry about a process to the timeline.
func (w *world) tracef(p *Process, format string, a ...any) {
	w.timeline.add(entry{at: time.Since(w.began), process: p.id, text: fmt.Sprintf(format, a...)})
}

// userDoes adds an act of the user to the timeline.
func (w *world) userDoes(format string, a ...any) {
	w.timeline.add(entry{at: time.Since(w.began), text: "the user " + fmt.Sprintf(format, a...)})
	w.touch()
}

// answered adds an error to the timeline.
func (w *world) answered(t *ticket, err error) {
	if err != nil {
		w.timeline.add(entry{
			at:      time.Since(w.began),
			process: t.process.id,
			target:  t.step.target,
			step:    true,
			text:    "    → " + err.Error(),
		})
	}
}

// decode replaces an object by its content.
func decode(content map[string]any, o client.Object) error {
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.Object = content
		return nil
	}
	zero(o)
	return runtime.DefaultUnstructuredConverter.FromUnstructured(content, o)
}
