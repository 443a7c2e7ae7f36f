package oracle

import "github.com/crossplane-graft/graft/pkg/crashtest/internal/history"

// An account summarises a history, event by event.
type account struct {
	*Expectations

	// versions of the managed resources.
	versions map[string]history.Version

	// kept external resources have to stay, because of the policies of their managed resource.
	kept map[string]bool

	// of has the object of each reconcile. last is the last reconcile that has begun.
	reconciles map[int]string
	last       int

	// excused creates were made by calls that arrived after their process had ended, and whose name had been
	// taken before: no provider can prevent that.
	excused int
	created map[string]bool

	// violations of the acts of the provider. panics are named last.
	violations, panics []Violation
}

// read a history.
func read(events []*history.Event) *account {
	a := &account{
		Expectations: NewExpectations(), versions: map[string]history.Version{}, kept: map[string]bool{},
		reconciles: map[int]string{}, created: map[string]bool{},
	}
	for _, e := range events {
		a.add(e)
	}
	return a
}

func (a *account) violate(v Verdict, format string, args ...any) {
	a.violations = append(a.violations, one(v, format, args...)...)
}

func (a *account) add(e *history.Event) {
	switch e.Kind {
	case history.KindAct:
		a.Apply(e, a.last)
	case history.KindReconcile:
		a.last = e.Reconcile
		a.reconciles[e.Reconcile] = e.Object
	case history.KindObject:
		a.version(e)
	case history.KindRequest, history.KindArrival:
		for _, f := range e.Effects {
			a.effect(e, f)
		}
	case history.KindPanic:
		if len(a.panics) == 0 {
			a.panics = one(Panicked, "%s", e.Text)
		}
	case history.KindOverdue:
		if !Has(a.violations, Escaped) {
			a.violate(Escaped, "%s", e.Text)
		}
	}
}

// version of a managed resource.
func (a *account) version(e *history.Event) {
	v := e.Version
	for _, f := range v.Finalizers {
		if e.Process > 0 && a.finalizers[f] {
			a.violate(ForeignFinalizer, "process %d removed finalizer %s from %s, which another controller had added",
				e.Process, f, e.Object)
		}
	}
	if v.Exists {
		delete(a.kept, v.External)
		if v.External != "" && v.Orphans {
			a.kept[v.External] = true
		}
	}
	a.versions[e.Object] = v
	for name, other := range a.versions {
		if v.External == "" || name == e.Object || other.External != v.External || !v.Exists || !other.Exists ||
			!v.Ready || !other.Ready || a.of(name).shared || a.of(e.Object).shared ||
			Has(a.violations, SharedResource) {
			continue
		}
		a.violate(SharedResource, "%s and %s are both ready with external resource %q", name, e.Object, v.External)
	}
}

// effect of a call on an external resource.
func (a *account) effect(e *history.Event, f history.Effect) {
	if f.Created {
		if e.Kind == history.KindArrival && a.created[f.Name] {
			a.excused++
		}
		a.created[f.Name] = true
	}
	state, protected := a.protected[f.Name]
	switch {
	case protected && f.Deleted, a.kept[f.Name] && f.Deleted:
		a.violate(ActsOnAnothers, "call %q deleted external resource %q, which has to stay", e.Request, f.Name)
		delete(a.protected, f.Name)
		delete(a.kept, f.Name)
	case protected && f.After != state:
		a.violate(
			ActsOnAnothers, "call %q changed external resource %q, which belongs to another owner", e.Request, f.Name,
		)
		delete(a.protected, f.Name)
	}
	for _, name := range a.order {
		if a.duringPause(name, e, f) && !Has(a.violations, ActsWhilePaused) {
			a.violate(
				ActsWhilePaused, "call %q changed external resource %q while %s is paused", e.Request, f.Name, name,
			)
		}
	}
}

// duringPause reports whether a call acts for a managed resource that is paused. A reconcile that had begun
// before may finish.
func (a *account) duringPause(name string, e *history.Event, f history.Effect) bool {
	o := a.of(name)
	switch object, known := a.reconciles[e.Reconcile]; {
	case !o.paused || e.Kind == history.KindArrival:
		return false
	case known:
		return object == name && e.Reconcile > o.last
	case o.during:
		return false
	default:
		return len(a.order) == 1 || f.Name == a.versions[name].External
	}
}
