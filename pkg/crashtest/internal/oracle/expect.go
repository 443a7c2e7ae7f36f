package oracle

import "github.com/crossplane-graft/graft/pkg/crashtest/internal/history"

// Expectations follow from the acts of the user so far.
type Expectations struct {
	// order of the managed resources that the user created.
	order   []string
	objects map[string]*expected

	// allowed is how many external resources the provider may create. denied says that the external
	// system refuses each call.
	allowed int
	denied  bool

	// protected resources have to stay in a state. finalizers are other controllers'.
	protected  map[string]string
	finalizers map[string]bool
}

// An expected managed resource.
type expected struct {
	// gone says that the user deleted it, shared that any state is right.
	gone, shared bool

	// paused says that nothing may change, but by a reconcile up to the number last. during says that
	// the pause began during a call.
	paused, during bool
	last           int

	// changed says that its external resource must not stay in the state before, back that it has to be in it again.
	changed, back bool
	before        string
}

// NewExpectations returns the expectations before any act.
func NewExpectations() *Expectations {
	return &Expectations{
		objects: map[string]*expected{}, protected: map[string]string{}, finalizers: map[string]bool{},
	}
}

// of returns the expectations about a managed resource.
func (x *Expectations) of(name string) *expected {
	if x.objects[name] == nil {
		x.objects[name] = &expected{}
		x.order = append(x.order, name)
	}
	return x.objects[name]
}

// Apply an event to the expectations. last is the number of the last reconcile that has begun.
func (x *Expectations) Apply(e *history.Event, last int) {
	if e.Kind != history.KindAct {
		return
	}
	switch a := e.Act; a.Kind {
	case history.Other:
	case history.Created, history.CreatedShared:
		*x.of(e.Object) = expected{shared: a.Kind == history.CreatedShared}
		if a.Kind == history.Created {
			x.allowed++
		}
	case history.Deleted:
		x.of(e.Object).gone = true
	case history.Changed:
		if o := x.of(e.Object); !o.changed {
			o.changed, o.back, o.before = true, false, a.State
		}
	case history.ChangedBack:
		o := x.of(e.Object)
		o.changed, o.back = false, true
	case history.Paused:
		o := x.of(e.Object)
		o.paused, o.during, o.last = true, a.During, last
	case history.Resumed:
		x.of(e.Object).paused = false
	case history.Protected:
		x.protected[a.External] = a.State
	case history.Released:
		delete(x.protected, a.External)
	case history.Denied, history.Granted:
		x.denied = a.Kind == history.Denied
	case history.Lost:
		x.allowed++
	case history.Finalized:
		x.finalizers[a.External] = true
	}
}

// Exempt reports whether a managed resource need not be as the user wants it.
func (x *Expectations) Exempt(name string) bool {
	o := x.of(name)
	return o.shared && !o.gone || o.paused || x.denied
}

// Gone reports whether the user deleted a managed resource and did not create it again.
func (x *Expectations) Gone(name string) bool { return x.of(name).gone }

// Met reports whether each managed resource is as the user wants it.
func (x *Expectations) Met(s State) bool {
	for _, name := range x.order {
		o := s.object(name)
		_, there := s.External[o.External]
		switch gone := x.of(name).gone; {
		case x.Exempt(name), gone && !o.Exists:
		case gone, !o.Exists, !o.Ready, !there:
			return false
		}
	}
	return true
}
