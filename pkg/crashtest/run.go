package crashtest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/simulation"
)

// finalizerFor is how long another controller takes to remove its finalizer, which is anotherFinalizer unless
// Provider.Object has one.
const (
	finalizerFor     = 10 * time.Second
	anotherFinalizer = "example.org/another-controller"
)

// A run is one scenario with the faults that strike in it. It belongs to one bubble of testing/synctest.
type run struct {
	provider *subject

	sim    *simulation.Simulation
	cloud  Cloud
	events []*history.Event
	expect *oracle.Expectations

	// first and second are the managed resources as the user creates them. objects are as the watch delivered them.
	first, second client.Object
	objects       map[string]oracle.Object
	stored        map[string]client.Object

	// foreign is how many external resources existed before the run.
	foreign int

	faults striker
	phase  phase

	// broken is an error that ends the run.
	broken error
}

// A phase of a run is the time after an act.
type phase struct {
	// final says that it is the last one. wait is how long it has to take at least.
	final bool
	wait  time.Duration

	// disturbed is the time of the last act or fault, settled since when each managed resource is as the user wants it.
	disturbed, settled time.Duration

	requests int

	// pending are the acts that happen during calls.
	pending []func() error
}

// unsettled says that a managed resource is not as the user wants it.
const unsettled time.Duration = -1

// look whether each managed resource is as the user wants it.
func (r *run) look() {
	switch met := r.expect.Met(r.state()); {
	case met && r.phase.settled == unsettled:
		r.phase.settled = r.sim.Since()
		r.record(history.Event{Kind: history.KindSettled})
	case !met && r.phase.settled != unsettled:
		r.phase.settled = unsettled
		r.record(history.Event{Kind: history.KindUnsettled})
	}
}

// state of the managed resources and the external system.
func (r *run) state() oracle.State {
	s := oracle.State{External: r.cloud.Exists(), Created: r.cloud.Made()[r.foreign:]}
	for _, name := range slices.Sorted(maps.Keys(r.objects)) {
		s.Objects = append(s.Objects, r.objects[name])
	}
	return s
}

// final returns the state at the end, with connection secrets.
func (r *run) final() oracle.State {
	s := r.state()
	for i := range s.Objects {
		o := &s.Objects[i]
		if stored := r.stored[o.Name]; stored != nil {
			o.Secret = connectionSecret(context.Background(), r.sim.API.Admin(), stored)
			if d, ok := r.cloud.(Detailed); ok && o.Secret != nil {
				o.Details = d.ConnectionDetails(o.External)
			}
		}
	}
	return s
}

// changed is called for each change of a managed resource.
func (r *run) changed(name string, was, is client.Object, process int) {
	o := r.provider.describe(name, is)
	v := o.Version
	if r.phase.settled != unsettled && r.phase.final {
		v.Fields = changedFields(was, is)
	}
	v.Finalizers = removedFinalizers(was, is)
	r.objects[name], r.stored[name] = o, is
	r.record(history.Event{Kind: history.KindObject, Process: process, Object: name, Version: v})
	if r.provider.waitsForAnother(is) && !r.provider.waitsForAnother(was) {
		r.sim.After(finalizerFor, func() {
			r.broken = r.edit(is, func(o client.Object) error {
				o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), r.provider.isForeign))
				return nil
			})
		})
	}
}

// waitsForAnother reports whether an object that is being deleted has finalizers of other controllers.
func (s *subject) waitsForAnother(o client.Object) bool {
	return o != nil && o.GetDeletionTimestamp() != nil && slices.ContainsFunc(o.GetFinalizers(), s.isForeign)
}

// isForeign reports whether a finalizer is another controller's.
func (s *subject) isForeign(f string) bool {
	return f != managed.FinalizerName && (f == anotherFinalizer || slices.Contains(s.Object.GetFinalizers(), f))
}

// nameOf returns the external name of a managed resource.
func (r *run) nameOf(o client.Object) string {
	o, err := r.sim.API.Stored(o)
	if err != nil || o == nil {
		return ""
	}
	return r.provider.Name(o)
}

// edit a managed resource, unless it no longer exists.
func (r *run) edit(of client.Object, fn func(o client.Object) error) error {
	for {
		o, err := r.sim.API.Stored(of)
		if err != nil || o == nil {
			return err
		}
		if err := fn(o); err != nil {
			return err
		}
		if err := r.sim.API.Admin().Update(context.Background(), o); !kerrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
	}
}

func (r *run) record(e history.Event) *history.Event {
	e.At = r.sim.Since()
	r.events = append(r.events, &e)
	return &e
}

// act records an act.
func (r *run) act(e history.Event) {
	r.expect.Apply(r.record(e), 0)
}

// effect makes a call, and records its changes. Behind [Process.Transport] is only the fake. Any other call may run
// code of the provider, whose panic is a finding.
func (r *run) effect(s *simulation.Request, call func(e *history.Event) error) (err error) {
	defer func() {
		switch v := recover(); {
		case v == nil:
		case s.HTTP:
			err = errors.Errorf(
				"crashtest: the fake of the external system panicked in call %q: %v\n%s", s, v, simulation.Stack(),
			)
			r.broken = err
		default:
			err = errors.Errorf("panic in call %q: %v\n%s", s, v, simulation.Stack())
			if s.Event.Kind != history.KindArrival { // A process that is dead can't panic.
				r.record(history.Event{Kind: history.KindPanic, Process: s.Process.ID, Text: err.Error()})
			}
		}
	}()
	before, made := r.cloud.Exists(), len(r.cloud.Made())
	err = call(s.Event)
	s.Event.Effects = effects(before, r.cloud.Exists(), r.cloud.Made()[made:])
	if len(s.Event.Effects) > 0 && len(r.phase.pending) > 0 {
		do := r.phase.pending[0]
		r.phase.pending = r.phase.pending[1:]
		if failed := do(); failed != nil {
			r.broken = failed
		}
		r.phase.disturbed = r.sim.Since()
	}
	return err
}

// effects compares the external system before and after a call.
func effects(before, after map[string]string, made []string) (out []history.Effect) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range made {
		delete(all, name)
	}
	for i, name := range slices.Concat(made, slices.Sorted(maps.Keys(all))) {
		was, had := before[name]
		is, exists := after[name]
		if created := i < len(made); created || was != is || had != exists {
			out = append(out, history.Effect{
				Name: name, Before: was, After: is, Created: created, Deleted: !created && !exists,
			})
		}
	}
	return out
}

// answered records the answer to a request if it is an error.
func (r *run) answered(s *simulation.Request, err error) {
	e := history.Event{
		Kind: history.KindAnswer, Process: s.Process.ID, Reconcile: s.Reconcile, Request: s.Request,
		Number: s.Event.Number,
	}
	var status httpStatus
	switch {
	case errors.As(err, &status):
		e.Outcome.Status, e.Text = int(status), status.Error()+" (injected)"
	case err != nil:
		e.Text = err.Error()
	case s.Event.Outcome.Status >= 400:
		e.Outcome.Status = s.Event.Outcome.Status
		e.Text = statusText(e.Outcome.Status)
	default:
		return
	}
	e.Outcome.Failed = true
	e.Outcome.Refused = s.Target == history.API && s.Event.Fault == "" &&
		(kerrors.IsInvalid(err) || kerrors.IsBadRequest(err) || kerrors.IsForbidden(err))
	r.record(e)
}
