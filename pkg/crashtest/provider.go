package crashtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/fault"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/simulation"
	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// A Provider is what [Run] tests: one kind of managed resource, its reconciler, and a fake
// of the external system. C is the type of that fake. Several scenarios run at the same
// time: the functions have to be safe for concurrent use, and must not share state.
type Provider[C Cloud] struct {
	// Scheme of the kinds that the provider uses. Required.
	Scheme *runtime.Scheme

	// Object is the managed resource as a user creates it. Required. A cluster-scoped
	// kind has no namespace. Its finalizers belong to other controllers, which remove
	// them ten seconds after the deletion.
	Object client.Object

	// Beside lists the objects that exist from the start, for instance a ProviderConfig
	// and its Secret.
	Beside []client.Object

	// CRDs is the folder with the CustomResourceDefinitions of the provider, for instance
	// "../../package/crds". The API server takes the scope and defaults of a kind from
	// them. Without, a kind has no defaults and the scope of its object. Kinds that are not
	// in the scheme are left out.
	CRDs string

	// Cloud returns a new fake of the external system. Required. It is called once a run.
	// Resources that exist in a new cloud belong to another user: changing one is a
	// finding.
	Cloud func() C

	// Start starts a process of the provider: it returns a new reconciler. Required. It is
	// called again after each fault that ends a process.
	Start func(p *Process, cloud C) (reconcile.Reconciler, error)

	// Change changes the spec of a managed resource as a user does. The change has to show
	// in [Cloud.Exists]. Scenarios with a change are left out if it is nil.
	Change func(o client.Object)

	// Second changes the second managed resource of some scenarios before it is created, where
	// a field has to be unique. Optional. Its name is another one already.
	Second func(o client.Object)

	// Invariant returns an error if something is wrong at the end of a run. Optional. o
	// is nil if the managed resource no longer exists. api reads any other object.
	Invariant func(o client.Object, cloud C, api client.Reader) error

	// Name returns the external name of a managed resource. If it is nil, the external name
	// is the annotation crossplane.io/external-name.
	Name func(o client.Object) string

	// Status returns the error of the external system's SDK for an HTTP status code.
	// [Process.Step] returns it in place of a call. A default error has the code in its
	// message. An error for [Process.Transport] is an HTTP response, and needs no Status.
	Status func(code int) error

	// Serial lets a process reconcile one object at a time, which is the default of
	// controller-runtime. Set it if the provider holds a lock during a request, as the token
	// source of golang.org/x/oauth2 does: no simulated time passes while a goroutine waits for a
	// lock. Without it, a process reconciles all of its objects at the same time.
	Serial bool

	// Scenarios to run. [Scenarios] if it is empty. A scenario that [Scenarios] returns is left out if
	// the provider has nothing for it.
	Scenarios []Scenario

	// Accept lists verdicts that are counted and logged, but don't fail the test. Accept
	// [Stopped] for an external system that can't be asked whether a create succeeded.
	Accept []Verdict
}

// check a provider.
func (p Provider[C]) check() (*checked, error) {
	switch {
	case p.Scheme == nil:
		return nil, errors.New("crashtest: Provider.Scheme is nil: set it to a scheme with the kinds of the provider")
	case is.Nil(p.Object):
		return nil, errors.New("crashtest: Provider.Object is nil: set it to a managed resource as a user creates it")
	case p.Cloud == nil:
		return nil, errors.New(
			"crashtest: Provider.Cloud is nil: set it to a function that returns a new fake of the external system",
		)
	case p.Start == nil:
		return nil, errors.New(
			"crashtest: Provider.Start is nil: set it to a function that returns the provider's reconciler",
		)
	case p.Object.GetName() == "":
		return nil, errors.New(
			"crashtest: Provider.Object has no name: set metadata.name, because the API server in memory generates " +
				"none",
		)
	}

	for _, v := range p.Accept {
		if !slices.Contains(oracle.Verdicts(), v) {
			return nil, errors.Errorf("crashtest: Provider.Accept has %q, which is not a verdict of this package", v)
		}
	}
	crds, err := readCRDs(p.CRDs)
	if err != nil {
		return nil, err
	}
	s := &checked{
		scheme: p.Scheme, object: p.Object, beside: p.Beside, crds: inScheme(crds, p.Scheme),
		change: p.Change, second: p.Second, name: p.Name, status: p.Status, serial: p.Serial,
		accept: p.Accept,
	}

	for i, o := range append([]client.Object{p.Object}, p.Beside...) {
		if is.Nil(o) {
			return nil, errors.Errorf("crashtest: Provider.Beside[%d] is nil", i-1)
		}
		gvk, err := apiutil.GVKForObject(o, p.Scheme)
		if err != nil {
			return nil, errors.Wrapf(
				err,
				"crashtest: the kind of %T is not in Provider.Scheme: call the AddToScheme function of its package",
				o,
			)
		}
		if !slices.ContainsFunc(s.crds, defines(gvk)) && strings.Contains(gvk.Group, ".") &&
			!strings.HasSuffix(gvk.Group, ".k8s.io") {
			s.crds = append(s.crds, crdFor(gvk, o.GetNamespace() != ""))
		}
	}

	s.object, _ = p.Object.DeepCopyObject().(client.Object)
	s.object.SetResourceVersion("")

	s.newCloud = func() (c Cloud, err error) {
		defer func() {
			if v := recover(); v != nil {
				err = errors.Errorf("crashtest: Provider.Cloud panicked: %v", v)
			}
		}()
		made := p.Cloud()
		if is.Nil(made) {
			return nil, errors.New("crashtest: Provider.Cloud returned nil: return a new fake of the external system")
		}
		return made, nil
	}
	s.start = func(pr *Process, cloud Cloud) (r reconcile.Reconciler, err error) {
		defer func() {
			if v := recover(); v != nil {
				err = errors.Errorf(
					"crashtest: Provider.Start panicked: %v (Process.Manager has clients, a scheme and recorders, "+
						"but no cache and no webhook server)\n%s",
					v,
					simulation.Stack(),
				)
			}
		}()
		c, _ := cloud.(C)
		r, err = p.Start(pr, c)
		if err == nil && is.Nil(r) {
			err = errors.New(
				"crashtest: Provider.Start returned a nil reconciler and no error: return the provider's reconciler",
			)
		}
		return r, errors.Wrap(err, "crashtest: Provider.Start failed")
	}

	if p.Invariant != nil {
		s.invariant = func(o client.Object, c Cloud, api client.Reader) error {
			own, _ := c.(C)
			return p.Invariant(o, own, api)
		}
	}

	if s.named = p.Name != nil; !s.named {
		s.name = func(o client.Object) string { return meta.GetExternalName(o) }
	}

	if s.status == nil {
		s.status = func(code int) error {
			return fmt.Errorf("the external system answered with status %d (injected)", code)
		}
	}
	for _, code := range fault.StatusCodes() {
		if s.status(code) == nil {
			return nil, errors.Errorf(
				"crashtest: Provider.Status returned nil for status %d: return the error that the SDK makes of it",
				code,
			)
		}
	}
	return s, nil
}
