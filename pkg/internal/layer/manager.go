package layer

import (
	"runtime"

	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// LiveReader returns a reader that reads from the API server, or the manager's client if a
// manager made for tests has no other reader.
func LiveReader(m manager.Manager) client.Reader {
	var live client.Reader
	if !implemented(func() { live = m.GetAPIReader() }) || is.Nil(live) {
		return m.GetClient()
	}
	return live
}

// AddTo adds a runnable to a manager. It panics if a manager made for tests can't run it.
func AddTo(m manager.Manager, r manager.Runnable) error {
	var err error
	if !implemented(func() { err = m.Add(r) }) {
		panic(errors.New("asyncstate.With was given a manager that can't run the tracker of operations: create the manager with ctrl.NewManager, or give the test's manager an Add method. One that embeds a nil manager.Manager has none"))
	}
	return err
}

// implemented calls a method of a manager, and reports whether the manager has the method. A
// manager made for tests often embeds a nil manager.Manager, like the one in
// crossplane-runtime's package fake. Methods that it does not override dereference nil.
func implemented(call func()) (ok bool) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case runtime.Error:
			ok = false
		default:
			panic(p)
		}
	}()
	call()
	return true
}

// MustBeUsable panics unless a reconciler can be made with the manager.
func MustBeUsable(m manager.Manager) {
	switch {
	case is.Nil(m):
		panic(errors.New("cannot create a reconciler without a manager: pass the one that the controller is added to"))
	case is.Nil(m.GetClient()):
		panic(errors.New("cannot create a reconciler: the manager has no client; create it with ctrl.NewManager, or give the test's manager a client"))
	case m.GetScheme() == nil:
		panic(errors.New("cannot create a reconciler: the manager has no scheme; create it with ctrl.NewManager, or give the test's manager a scheme"))
	}
}
