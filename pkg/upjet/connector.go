package upjet

import (
	"context"
	"maps"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/upjet/v2/pkg/config"
	tjcontroller "github.com/crossplane/upjet/v2/pkg/controller"
	"github.com/crossplane/upjet/v2/pkg/resource"
	"github.com/crossplane/upjet/v2/pkg/terraform"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	tfsdk "github.com/hashicorp/terraform-plugin-sdk/v2/terraform"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// lookTimeout is how long a Finder may take after a create that returned an error. A shutdown
// waits for it.
const lookTimeout = 10 * time.Second

// A Terraform describes a resource of a Terraform provider to a connector. All fields but
// Finder and Logger are required.
type Terraform struct {
	// Client is the client for Setup.
	Client client.Client

	// Setup returns the configured Terraform provider.
	Setup terraform.SetupFn

	// States is the store that the connector was created with.
	States *tjcontroller.OperationTrackerStore

	// Resource is the configuration of the resource.
	Resource *config.Resource

	// Finder looks up external resources of interrupted creates. None by default.
	Finder Finder

	// Logger gets debug messages. They go nowhere by default.
	Logger logging.Logger
}

func (t Terraform) check() error {
	switch {
	case t.Client == nil:
		return errors.New("set Client")
	case t.Setup == nil:
		return errors.New("set Setup")
	case t.States == nil:
		return errors.New("set States to the connector's OperationTrackerStore")
	case t.Resource == nil:
		return errors.New("set Resource to the configuration of the resource")
	default:
		return nil
	}
}

// NewConnector returns a connector for use with asyncstate.With. It wraps c, one
// of upjet's synchronous connectors: a TerraformPluginSDKConnector or a
// TerraformPluginFrameworkConnector. It panics if c is nil or a required field of t
// is not set.
//
// Its clients connect when they are first used. They are for one reconcile each,
// and for the operation that it begins. Clients of the same managed resource wait
// for each other, but Observe does not wait for an operation: it reports that the
// external resource exists and is up to date.
func NewConnector(c managed.ExternalConnector, t Terraform) managed.ExternalConnector {
	if is.Nil(c) {
		panic(errors.New("upjet.NewConnector was given no connector: pass one of upjet's synchronous connectors"))
	}
	if err := t.check(); err != nil {
		panic(errors.Wrap(err, "upjet.NewConnector was given an incomplete Terraform"))
	}
	if t.Logger == nil {
		t.Logger = logging.NewNopLogger()
	}

	// A function that returns a Finder may return a pointer that is nil.
	if is.Nil(t.Finder) {
		t.Finder = nil
	}
	return &connector{inner: c, deleter: t.deleter(c), terraform: t, gates: newGates()}
}

type connector struct {
	inner managed.ExternalConnector

	// deleter connects to delete, unless it is nil.
	deleter   managed.ExternalConnector
	terraform Terraform
	gates     *gates
}

// deleter returns the connector whose clients delete. A client of the plugin SDK deletes with the diff of its Observe,
// and Terraform was made to delete without one: a diff that replaces the external resource creates another one after
// the delete (upjet#420, upjet#723), and an argument that is part of its identity makes it delete another one.
// It returns nil if c is of another type, and may wrap upjet's.
func (t Terraform) deleter(c managed.ExternalConnector) managed.ExternalConnector {
	if _, ok := c.(*tjcontroller.TerraformPluginSDKConnector); !ok {
		return nil
	}
	r := *t.Resource
	r.TerraformCustomDiff = switchesOnly(r.TerraformCustomDiff, r.TerraformResource.SchemaMap())

	// upjet leaves what only initProvider has out of the diff, so without the policies the diff is the same.
	return tjcontroller.NewTerraformPluginSDKConnector(t.Client, t.Setup, &r, t.States,
		tjcontroller.WithTerraformPluginSDKLogger(t.Logger),
		tjcontroller.WithTerraformPluginSDKManagementPolicies(true))
}

// switchesOnly reduces the diff of custom to boolean arguments if the external resource exists. These are not part of
// its identity, and a delete may need one, for instance force_destroy. Other arguments keep the values of the state.
func switchesOnly(custom config.CustomDiff, arguments map[string]*schema.Schema) config.CustomDiff {
	return func(
		diff *tfsdk.InstanceDiff, s *tfsdk.InstanceState, c *tfsdk.ResourceConfig,
	) (*tfsdk.InstanceDiff, error) {
		if custom != nil {
			var err error
			if diff, err = custom(diff, s, c); err != nil {
				return nil, err
			}
		}
		if diff == nil || s == nil || s.ID == "" {
			return diff, nil
		}
		maps.DeleteFunc(diff.Attributes, func(k string, a *tfsdk.ResourceAttrDiff) bool {
			argument := arguments[k]
			return argument == nil || argument.Type != schema.TypeBool || a == nil || a.RequiresNew || a.NewComputed
		})
		return diff, nil
	}
}

// Connect to nothing yet: whether an operation runs is not known here.
func (c *connector) Connect(_ context.Context, mg xpresource.Managed) (managed.ExternalClient, error) {
	if _, ok := mg.(resource.Terraformed); !ok {
		return nil, errors.Errorf("%T is not a resource of a Terraform provider: "+
			"use the connector with managed resources that upjet generated", mg)
	}
	e := &external{connector: c}
	if c.terraform.Finder == nil {
		return e, nil
	}
	return &findingExternal{e}, nil
}

// external is a client of one reconcile, and of the operation that it begins.
type external struct {
	*connector

	// inner is nil until it is connected, with the external name that name is.
	inner managed.ExternalClient
	name  string

	// planned says that inner has observed, and so has the plan that it applies.
	planned bool

	// spent says that the Observe of inner found nothing, or failed. A client of the plugin SDK may
	// have no state left then, and another Observe would panic.
	spent bool

	// deletes says that the deleter connects.
	deletes bool
}

// Observe the external resource, unless an operation runs.
func (e *external) Observe(ctx context.Context, mg xpresource.Managed) (managed.ExternalObservation, error) {
	leave, ok := e.gates.try(mg.GetUID())
	if !ok {
		return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}, nil
	}
	defer leave()
	if meta.WasDeleted(mg) {
		if err := e.toDelete(ctx); err != nil {
			return managed.ExternalObservation{}, err
		}
	}
	o, err := e.observe(ctx, mg)
	if err == nil && o.ResourceExists && o.ResourceUpToDate && !meta.WasDeleted(mg) {
		clearLastAsyncOperation(mg)
	}
	return o, err
}

func (e *external) observe(ctx context.Context, mg xpresource.Managed) (managed.ExternalObservation, error) {
	if e.spent {
		if err := e.disconnect(ctx); err != nil {
			return managed.ExternalObservation{}, err
		}
	}
	if err := e.connect(ctx, mg); err != nil {
		return managed.ExternalObservation{}, err
	}
	o, err := e.inner.Observe(ctx, mg)
	e.planned, e.spent = err == nil, err != nil || !o.ResourceExists

	// Observe may have set it, from the state that the client has.
	e.name = meta.GetExternalName(mg)
	return o, classified(err)
}

// connect with the external name that mg has now.
func (e *external) connect(ctx context.Context, mg xpresource.Managed) error {
	if e.inner != nil && e.name == meta.GetExternalName(mg) {
		return nil
	}
	if err := e.disconnect(ctx); err != nil {
		return err
	}
	tr, _ := mg.(resource.Terraformed)
	if meta.GetExternalName(mg) != "" {
		e.terraform.forgetNameless(ctx, e.terraform.States.Tracker(tr))
	}
	c := e.connector.inner
	if e.deletes {
		c = e.deleter
	}
	inner, err := c.Connect(ctx, mg)
	if err != nil {
		return errors.Wrap(err, "cannot connect to the provider")
	}
	e.inner, e.name, e.planned, e.spent = inner, meta.GetExternalName(mg), false, false
	return nil
}

// plan observes, unless this client has done so: upjet's clients apply the plan of their
// Observe. It returns nil if there is a plan already.
func (e *external) plan(ctx context.Context, mg xpresource.Managed) (*managed.ExternalObservation, error) {
	if e.planned && e.name == meta.GetExternalName(mg) {
		return nil, nil //nolint:nilnil // As documented.
	}
	o, err := e.observe(ctx, mg)
	if err != nil {
		return nil, notRequested(errors.Wrap(err, "cannot plan"))
	}
	return &o, nil
}

// Create the external resource.
func (e *external) Create(ctx context.Context, mg xpresource.Managed) (managed.ExternalCreation, error) {
	leave, err := e.gates.enter(ctx, mg.GetUID())
	if err != nil {
		return managed.ExternalCreation{}, err
	}
	defer leave()

	switch o, err := e.plan(ctx, mg); {
	case err != nil:
		return managed.ExternalCreation{}, err
	case o != nil && o.ResourceExists:
		return managed.ExternalCreation{ConnectionDetails: o.ConnectionDetails}, nil
	}

	e.planned = false
	started := time.Now()
	c, err := e.inner.Create(ctx, mg)
	if err != nil {
		return managed.ExternalCreation{}, e.failed(ctx, mg, started, err)
	}
	return c, nil
}

// failed classifies the error of a create that began at started. If Terraform returned an ID
// with it, or the Finder finds the external resource, its name is stored. An ID may come without what
// the name is made of.
func (e *external) failed(ctx context.Context, mg xpresource.Managed, started time.Time, err error) error {
	tr, _ := mg.(resource.Terraformed)
	name, hasID := e.terraform.nameInState(ctx, e.terraform.States.Tracker(tr))
	if name == "" {
		name = e.look(ctx, tr, started)
	}

	switch {
	case name == "" && hasID:
		return unknown(err)
	case name == "":
		return classified(err)
	}
	meta.SetExternalName(mg, name)

	// If it cannot be stored now, it is stored with the result.
	if err := asyncstate.SetExternalName(ctx, name); err != nil {
		e.terraform.Logger.Debug("Cannot store the external name yet", "uid", mg.GetUID(), "error", err)
	}
	return unknown(err)
}

// look up the external resource of a create that returned an error. Without an answer the
// error alone decides the outcome.
func (e *external) look(ctx context.Context, tr resource.Terraformed, started time.Time) string {
	if e.terraform.Finder == nil {
		return ""
	}

	// The context of the create may be over, which is why it failed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	a := asyncstate.Attempt{Type: asyncstate.Create, Token: asyncstate.Token(ctx), Started: started}
	f, err := e.terraform.find(ctx, tr, a)
	if err != nil {
		e.terraform.Logger.Debug("Cannot look for the result of a create that failed", "uid", tr.GetUID(), "error", err)
		return ""
	}
	if !f.Found() {
		return ""
	}
	return f.ExternalName
}

// Update the external resource.
func (e *external) Update(ctx context.Context, mg xpresource.Managed) (managed.ExternalUpdate, error) {
	leave, err := e.gates.enter(ctx, mg.GetUID())
	if err != nil {
		return managed.ExternalUpdate{}, err
	}
	defer leave()

	switch o, err := e.plan(ctx, mg); {
	case err != nil:
		return managed.ExternalUpdate{}, err
	case o != nil && !o.ResourceExists:
		// Terraform would create it.
		return managed.ExternalUpdate{}, errors.New("the external resource does not exist")
	}

	e.planned = false
	u, err := e.inner.Update(ctx, mg)
	return u, judged(err)
}

// Delete the external resource.
func (e *external) Delete(ctx context.Context, mg xpresource.Managed) (managed.ExternalDelete, error) {
	leave, err := e.gates.enter(ctx, mg.GetUID())
	if err != nil {
		return managed.ExternalDelete{}, err
	}
	defer leave()

	if err := e.toDelete(ctx); err != nil {
		return managed.ExternalDelete{}, err
	}
	switch o, err := e.plan(ctx, mg); {
	case err != nil:
		return managed.ExternalDelete{}, err
	case o != nil && !o.ResourceExists:
		return managed.ExternalDelete{}, nil
	}

	e.planned = false
	if e.deleter == nil && e.terraform.Resource.TerraformPluginFrameworkResource == nil {
		// A client that has not observed has no diff.
		if err := e.disconnect(ctx); err != nil {
			return managed.ExternalDelete{}, err
		}
		if err := e.connect(ctx, mg); err != nil {
			return managed.ExternalDelete{}, err
		}
	}
	d, err := e.inner.Delete(ctx, mg)
	err = classified(err)
	if s, _ := creation.Of(mg); err == nil && time.Now().Before(s.OpenUntil) {
		// upjet would report absence without a look, but another create may still be carried out.
		tr, _ := mg.(resource.Terraformed)
		e.terraform.States.Tracker(tr).SetDeleted(false)
	}
	return d, err
}

// toDelete makes the client connect with the deleter, if there is one.
func (e *external) toDelete(ctx context.Context) error {
	if e.deletes || e.deleter == nil {
		return nil
	}
	e.deletes = true
	return e.disconnect(ctx)
}

// Disconnect from the provider.
func (e *external) Disconnect(ctx context.Context) error { return e.disconnect(ctx) }

func (e *external) disconnect(ctx context.Context) error {
	if e.inner == nil {
		return nil
	}
	inner := e.inner
	e.inner, e.planned = nil, false
	return inner.Disconnect(ctx)
}

// findingExternal is a client of a connector that has a Finder.
type findingExternal struct{ *external }

var _ asyncstate.Finder = &findingExternal{}

// Find the external resource of an interrupted create.
func (e *findingExternal) Find(
	ctx context.Context, mg xpresource.Managed, a asyncstate.Attempt,
) (asyncstate.Finding, error) {
	tr, ok := mg.(resource.Terraformed)
	if !ok {
		return asyncstate.Finding{}, errors.Errorf("%T is not a resource of a Terraform provider", mg)
	}
	return e.terraform.find(ctx, tr, a)
}

// clearLastAsyncOperation clears the condition of a failed operation that a stock controller
// has left: only upjet's asynchronous connectors clear it.
func clearLastAsyncOperation(mg xpresource.Managed) {
	if mg.GetCondition(resource.TypeLastAsyncOperation).Status == corev1.ConditionFalse {
		mg.SetConditions(resource.LastAsyncOperationCondition(nil))
	}
}
