package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// objectName names the managed resource that all is about.
const objectName = "one"

// How fast the cloud is.
const (
	readyAfter = 5 * time.Second
	goneAfter  = 5 * time.Second
)

// A world is the environment of one life: an API server, a cloud, a user, and the
// processes of a provider. All of it is in one bubble of synctest.
type world struct {
	column column
	kind   clientKind
	plan   plan
	rand   *rand.Rand
	lag    time.Duration

	server *embedded.Server
	cloud  *cloud.Cloud
	user   *user

	processes   []*process
	arrivals    []arrival
	retirements []retirement
	awayUntil   time.Time

	// denied counts the external resources that were made by calls that said
	// something else.
	denied int

	// steps since the life proper began.
	steps []step

	// reconciles so far, those before the last fault, and those before the last
	// change.
	reconciles, reconcilesBefore, reconcilesChanged int

	// touched says that the object may have been written to since it was seen.
	// seen is the object as the watch has delivered it. shape is the state that
	// was compared last, to detect changes, and changed when it was another.
	touched   bool
	seen      *v1alpha1.Database
	shape     string
	changed   time.Time
	predicate predicate.Predicate

	trace io.Writer
	began time.Time
	woken chan struct{}
	over  chan struct{}

	mu      sync.Mutex
	waiting []*ticket
}

// A plan says which faults strike at which steps. struck counts those that have.
type plan struct {
	at     []disturbance
	armed  bool
	struck int
}

// next returns the disturbance that comes next, or nil.
func (p plan) next() *disturbance {
	if !p.armed || p.struck == len(p.at) {
		return nil
	}
	return &p.at[p.struck]
}

// A user has one managed resource.
type user struct {
	uid types.UID

	// provoked reports whether the user deletes it at that step. It is nil if
	// there is nothing that the user still wants to do.
	provoked func(step) bool
}

// An environment is what lives are led in.
type environment struct {
	// seed of all that is random.
	seed uint64

	// lag is how long the cloud doesn't show what it has made.
	lag time.Duration
}

func newWorld(c column, k clientKind, p plan, e environment, trace io.Writer) (*world, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	server, err := embedded.New(embedded.Options{Scheme: scheme, CRDs: v1alpha1.CRDs()})
	if err != nil {
		return nil, err
	}
	w := &world{
		column: c, kind: k, plan: p, lag: e.lag,
		rand:   rand.New(rand.NewPCG(e.seed, e.seed)), //nolint:gosec // The same seed has to lead the same life.
		server: server,
		cloud: cloud.New(cloud.Options{
			ReadyAfter:   readyAfter,
			GoneAfter:    goneAfter,
			VisibleAfter: e.lag,
			Defaults:     map[string]string{"region": "north"},
		}),
		user:      &user{},
		predicate: xpresource.DesiredStateChanged(),
		trace:     trace,
		began:     time.Now(),
		woken:     make(chan struct{}, 1),
		over:      make(chan struct{}),
	}

	w.cloud.SetHooks(cloud.Hooks{Around: w.call})
	return w, nil
}

// call is the cloud's side of the gate.
func (w *world) call(ctx context.Context, c cloud.Call, effect cloud.Effect) error {
	s := step{target: cloudAPI, verb: string(c.Op), of: c.ID, creates: c.Op == cloud.OpCreate}
	if s.of == "" {
		s.of = c.Kind
	}

	switch c.Op {
	case cloud.OpCreate, cloud.OpUpdate, cloud.OpDelete:
		s.write = true
	case cloud.OpLogin, cloud.OpGet, cloud.OpList:
	}
	return w.pass(ctx, processOf(ctx), s, effect)
}

// end the world. Goroutines that wait for their turn end, and those of dead
// processes that wait for something else have time to notice.
func (w *world) end() {
	for _, p := range w.processes {
		p.cancel()
	}
	close(w.over)
	time.Sleep(24 * time.Hour)
}

func (w *world) request() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: objectName}}
}

// object returns the managed resource as it is stored, or nil.
func (w *world) object() (*v1alpha1.Database, error) {
	d := &v1alpha1.Database{}
	err := w.server.Admin().Get(context.Background(), w.request().NamespacedName, d)
	if kerrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // Absence is an answer here, not an error.
	}
	return d, err
}

// create, resize and remove are what a user does.

func (w *world) create() error {
	w.tracef("the user creates it")
	w.touched = true
	d := v1alpha1.NewDatabase(objectName)
	if err := w.server.Admin().Create(context.Background(), d); err != nil {
		return err
	}
	w.user.uid = d.GetUID()
	return nil
}

func (w *world) resize() error {
	w.tracef("the user changes its size")
	w.touched = true
	d, err := w.object()
	if err != nil {
		return err
	}
	d.Spec.ForProvider.Size = wantedSize
	return w.server.Admin().Update(context.Background(), d)
}

func (w *world) remove() error {
	w.tracef("the user deletes it")
	w.touched = true
	d, err := w.object()
	if err != nil || d == nil {
		return err
	}
	return w.server.Admin().Delete(context.Background(), d)
}

// provoke the user to delete.
func (w *world) provoke() error {
	w.user.provoked = nil
	return w.remove()
}

// observe what has happened: reconciles that ended, and what the watch tells.
func (w *world) observe() error {
	if err := w.watch(); err != nil {
		return err
	}
	for _, p := range w.alive() {
		o := p.collect()
		if o == nil {
			continue
		}
		w.reconciles++
		w.tracef("process %d reconciled: %s", p.id, o)
	}

	if shape := w.look(); shape != w.shape {
		w.shape = shape
		w.reconcilesChanged = w.reconciles
		w.changed = time.Now()
	}
	return nil
}

// watch tells the processes what happened to the object.
func (w *world) watch() error {
	if !w.touched {
		return nil
	}
	d, err := w.object()
	if err != nil {
		return err
	}
	if w.told(d) {
		for _, p := range w.alive() {
			p.told()
		}
	}

	w.seen, w.touched = d, false
	return nil
}

// told reports whether the watch of a provider delivers this change.
func (w *world) told(d *v1alpha1.Database) bool {
	switch {
	case w.seen == nil && d == nil:
		return false
	case w.seen == nil:
		return w.predicate.Create(event.CreateEvent{Object: d})
	case d == nil:
		return w.predicate.Delete(event.DeleteEvent{Object: w.seen})
	case w.seen.GetResourceVersion() == d.GetResourceVersion():
		return false
	default:
		return w.predicate.Update(event.UpdateEvent{ObjectOld: w.seen, ObjectNew: d})
	}
}

// look returns the object's version and the external resources as one text.
func (w *world) look() string {
	version := "none"
	if w.seen != nil {
		version = w.seen.GetResourceVersion()
	}
	return fmt.Sprintf("%s %v", version, w.cloud.Inventory())
}

// atRest reports whether nothing relevant happens any more: for a while nothing has
// changed, although everything ran that was due, and no process wants to look soon.
func (w *world) atRest() bool {
	w.mu.Lock()
	waiting := len(w.waiting)
	w.mu.Unlock()
	if waiting > 0 || len(w.arrivals)+len(w.retirements) > 0 || time.Since(w.changed) < restAfter {
		return false
	}
	soon := time.Now()

	if w.seen != nil {
		switch w.seen.GetCondition(asyncstate.TypeOperation).Reason {
		case asyncstate.ReasonInterrupted, asyncstate.ReasonOutcomeUnknown:
			soon = soon.Add(longestLook)
		case asyncstate.ReasonRunning:
			// By a process that is gone, for all that the others can know.
			soon = soon.Add(operationTimeout)
		}
		if w.seen.GetCondition(managed.TypeCreateResolved).Reason == managed.ReasonWaitingForCreate {
			soon = soon.Add(longestLook)
		}
	}

	for _, p := range w.alive() {
		p.mu.Lock()
		rests := !p.active && p.thaws.IsZero() && p.rests && p.due.After(soon)
		p.mu.Unlock()
		if !rests {
			return false
		}
	}
	return true
}

func (w *world) tracef(format string, a ...any) {
	if w.trace != nil {
		// No finer: upstream's retries wait for a little longer than they should, at
		// random.
		fmt.Fprintf(w.trace, "%8.1fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, a...))
	}
}

func (o *outcome) String() string {
	switch {
	case o.err != nil:
		return o.err.Error()
	case o.result.RequeueAfter > 0:
		return "again in " + o.result.RequeueAfter.String()
	case o.result.Requeue: //nolint:staticcheck // What upstream returns.
		return "again, with backoff"
	default:
		return "done"
	}
}

func (w *world) kindOf(o client.Object) string {
	gvk, err := apiutil.GVKForObject(o, w.server.Scheme())
	if err != nil {
		return fmt.Sprintf("%T", o)
	}
	return gvk.Kind
}
