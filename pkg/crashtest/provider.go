package crashtest

import (
	"fmt"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/fault"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// secondSuffix is the end of the second managed resource's name.
const secondSuffix = "-second"

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

// A subject is a checked provider. The type of its fake is erased.
type subject struct {
	Provider[Cloud]

	crds []*extv1.CustomResourceDefinition

	// second is the second managed resource as the user creates it.
	second client.Object

	// annotated says that the external name is an annotation.
	annotated bool
}

// check a provider.
func (p Provider[C]) check() (*subject, error) {
	for _, c := range []struct {
		wrong bool
		text  string
	}{
		{p.Scheme == nil, "Provider.Scheme is nil: set it to a scheme with the kinds of the provider"},
		{is.Nil(p.Object), "Provider.Object is nil: set it to a managed resource as a user creates it"},
		{p.Cloud == nil, "Provider.Cloud is nil: set it to a function that returns a new fake of the external system"},
		{p.Start == nil, "Provider.Start is nil: set it to a function that returns the provider's reconciler"},
		{!is.Nil(p.Object) && p.Object.GetName() == "", "Provider.Object has no name: set metadata.name, because the " +
			"API server in memory generates none"},
	} {
		if c.wrong {
			return nil, errors.New("crashtest: " + c.text)
		}
	}
	for _, v := range p.Accept {
		if !slices.Contains(oracle.Verdicts(), v) {
			return nil, errors.Errorf("crashtest: Provider.Accept has %q, which is not a verdict of this package", v)
		}
	}
	s := &subject{Provider: p.erase(), annotated: p.Name == nil}
	for _, code := range fault.StatusCodes() {
		if s.Status(code) == nil {
			return nil, errors.Errorf(
				"crashtest: Provider.Status returned nil for status %d: return the error of the SDK", code,
			)
		}
	}
	if err := s.addCRDs(); err != nil {
		return nil, err
	}
	s.second = s.secondObject()
	return s, nil
}

// erase the type of the fake, and set defaults.
func (p Provider[C]) erase() Provider[Cloud] {
	out := Provider[Cloud]{
		Scheme: p.Scheme, Beside: p.Beside, CRDs: p.CRDs, Change: p.Change, Second: p.Second, Name: p.Name,
		Status: p.Status, Serial: p.Serial, Scenarios: p.Scenarios, Accept: p.Accept,
	}
	out.Object, _ = p.Object.DeepCopyObject().(client.Object)
	out.Object.SetResourceVersion("")
	out.Cloud = func() Cloud {
		if c := p.Cloud(); !is.Nil(c) {
			return c
		}
		return nil
	}
	out.Start = func(pr *Process, cloud Cloud) (reconcile.Reconciler, error) {
		c, _ := cloud.(C)
		r, err := p.Start(pr, c)
		if err == nil && is.Nil(r) {
			err = errors.New("it returned a nil reconciler and no error: return the provider's reconciler")
		}
		return r, err
	}
	if p.Invariant != nil {
		out.Invariant = func(o client.Object, cloud Cloud, api client.Reader) error {
			c, _ := cloud.(C)
			return p.Invariant(o, c, api)
		}
	}
	if out.Name == nil {
		out.Name = func(o client.Object) string { return meta.GetExternalName(o) }
	}
	if out.Status == nil {
		out.Status = func(code int) error {
			return fmt.Errorf("the external system answered with status %d (injected)", code)
		}
	}
	return out
}

// newCloud returns a new fake.
func (s *subject) newCloud() (c Cloud, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.Errorf("crashtest: Provider.Cloud panicked: %v", v)
		}
	}()
	if c = s.Cloud(); c == nil {
		return nil, errors.New("crashtest: Provider.Cloud returned nil: return a new fake of the external system")
	}
	return c, nil
}

// secondObject returns the second managed resource. It has a connection secret of its own, because only one managed
// resource can control a Secret.
func (s *subject) secondObject() client.Object {
	o, _ := s.Object.DeepCopyObject().(client.Object)
	o.SetName(o.GetName() + secondSuffix)
	content, path := contentOf(o), []string{"spec", "writeConnectionSecretToRef", "name"}
	if name, found, err := unstructured.NestedString(content, path...); found && err == nil {
		if err := unstructured.SetNestedField(content, name+secondSuffix, path...); err == nil {
			_ = decode(content, o)
		}
	}
	if s.Second != nil {
		s.Second(o)
	}
	return o
}
