package main

import (
	"fmt"
	"io"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// wantedSize is what the user changes the size to.
const wantedSize = 5

// A story is a life that is led again and again.
type story struct {
	name string

	// existing says that the external resource is there when it begins.
	existing bool

	// begin is what the user does first.
	begin func(w *world) error

	// provoked is the step at which the user deletes the object, if not at
	// first. It happens at the end if there is no such step.
	provoked func(step) bool

	// size that the resource has if it isn't deleted, and whether it is.
	size    int
	deleted bool
}

// stories returns all lives.
func stories() []story {
	calls := func(op cloud.Op) func(step) bool {
		return func(s step) bool { return s.target == cloudAPI && s.verb == string(op) }
	}
	return []story{
		{name: "create", begin: (*world).create, size: 1},
		{name: "update", existing: true, begin: (*world).resize, size: wantedSize},
		{name: "delete", existing: true, begin: (*world).remove, deleted: true},
		{name: "delete-in-create", begin: (*world).create, provoked: calls(cloud.OpCreate), deleted: true},
		{name: "delete-in-update", existing: true, begin: (*world).resize, provoked: calls(cloud.OpUpdate), deleted: true},
	}
}

// lead a life, in a bubble of its own, and return what was found.
func lead(t *testing.T, s story, c column, k clientKind, p plan, e environment, trace io.Writer) finding {
	var f finding

	synctest.Test(t, func(*testing.T) {
		w, err := newWorld(c, k, p, e, trace)
		if err != nil {
			f.err = err
			return
		}
		defer w.end()
		f = w.lead(s)
	})
	return f
}

func (w *world) lead(s story) finding {
	if s.existing {
		if err := w.prepare(); err != nil {
			return finding{err: err}
		}
	}

	w.plan.armed = true
	w.reconcilesBefore, w.reconcilesChanged = w.reconciles, w.reconciles
	w.user.provoked = s.provoked
	if err := s.begin(w); err != nil {
		return finding{err: err}
	}
	if !s.existing {
		if err := w.start(); err != nil {
			return finding{err: err}
		}
	}

	rested, err := w.settle()

	if err == nil && w.user.provoked != nil {
		if err = w.provoke(); err == nil {
			rested, err = w.settle()
		}
	}

	w.plan.armed = false
	if err != nil {
		return finding{err: err}
	}
	return w.judge(s, rested)
}

// prepare an external resource that exists.
func (w *world) prepare() error {
	if err := w.create(); err != nil {
		return err
	}
	if err := w.start(); err != nil {
		return err
	}
	rested, err := w.settle()
	if err != nil {
		return err
	}
	if !rested || len(w.cloud.Inventory()) != 1 {
		return fmt.Errorf("cannot prepare the life: the resource was not created undisturbed")
	}
	w.tracef("--- the life proper begins")
	return nil
}

func sizeOf(r cloud.Resource) int {
	n, err := strconv.Atoi(r.Properties["size"])
	if err != nil {
		return 0
	}
	return n
}
