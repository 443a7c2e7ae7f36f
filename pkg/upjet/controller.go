package upjet

import (
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/upjet/v2/pkg/config"
	tjcontroller "github.com/crossplane/upjet/v2/pkg/controller"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/contested"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
)

// afterTerraform is how much later than Terraform's own time-out an operation is cancelled:
// Terraform's error says more, and may come with an ID.
const afterTerraform = time.Minute

// A Controller has the parts that the generated controller of one kind needs beside upjet.
// It is safe for concurrent use.
type Controller struct {
	tracker   *asyncstate.Tracker
	terraform Terraform
}

// NewController returns the parts for the controller of r. Pass no Finder, or nil, if there is
// none for r. It panics if r is nil, as for a resource that the provider's configuration
// lacks, or if o lacks a field that generated controllers use.
func NewController(mgr ctrl.Manager, o tjcontroller.Options, r *config.Resource, f ...Finder) *Controller {
	c := &Controller{terraform: Terraform{
		Client: mgr.GetClient(), Setup: o.SetupFn, States: o.OperationTrackerStore, Resource: r, Logger: o.Logger,
	}}

	for _, f := range f {
		if f != nil {
			c.terraform.Finder = f
		}
	}

	if err := c.terraform.check(); err != nil {
		panic(errors.Wrap(err, "upjet.NewController was given incomplete options"))
	}
	c.tracker = asyncstate.NewTracker(
		append(TrackerOptions(r), asyncstate.WithMetrics(registered(asyncstate.NewMetrics())))...,
	)
	return c
}

// WithExternalConnecter makes the operations of one of upjet's synchronous connectors
// outlive the reconcile and the process: it is managed.WithExternalConnector,
// asyncstate.With and contested.With, because upjet sets fields of spec that a composition
// also sets.
func (c *Controller) WithExternalConnecter(ec upstream.ExternalConnector) managed.ReconcilerOption {
	connector := managed.WithExternalConnector(NewConnector(ec, c.terraform))
	async, bounded := asyncstate.With(c.tracker), contested.With()
	return func(r *managed.Reconciler) {
		connector(r)
		async(r)
		bounded(r)
	}
}

// RateLimits returns the rate limits of this process: ratelimit.New, the same for all
// generated controllers. The arguments of the first call count. It registers their metrics.
func RateLimits(perSecond float64, burst int) *ratelimit.Limits {
	return registered(ratelimit.New(perSecond, burst))
}

// Source returns the tracker's source: pass it to the controller's WatchesRawSource.
func (c *Controller) Source() source.Source { return c.tracker.Source() }

// TrackerOptions returns the options that follow from the configuration of a resource.
//
// Names are deterministic unless the configuration disables the name initializer.
//
// Operations are cancelled a minute after the longest of the time-outs for create, update
// and delete. OperationTimeouts comes before the Terraform resource, and
// asyncstate.DefaultTimeout is for operations without either.
func TrackerOptions(r *config.Resource) []asyncstate.TrackerOption {
	o := []asyncstate.TrackerOption{asyncstate.WithTimeout(longest(r) + afterTerraform)}
	if !r.ExternalName.DisableNameInitializer {
		o = append(o, asyncstate.WithDeterministicNames())
	}
	return o
}

// longest of the time-outs of a resource's operations.
func longest(r *config.Resource) time.Duration {
	create, update, remove := r.OperationTimeouts.Create, r.OperationTimeouts.Update, r.OperationTimeouts.Delete
	if r.TerraformResource != nil && r.TerraformResource.Timeouts != nil {
		t := r.TerraformResource.Timeouts
		create = or(create, t.Create, t.Default)
		update = or(update, t.Update, t.Default)
		remove = or(remove, t.Delete, t.Default)
	}
	d := asyncstate.DefaultTimeout
	return max(or(create, &d), or(update, &d), or(remove, &d))
}

// or returns d, or the first of the others that is set if d is not.
func or(d time.Duration, others ...*time.Duration) time.Duration {
	for _, o := range others {
		if d == 0 && o != nil {
			d = *o
		}
	}
	return d
}

// registered returns c, or the collector of the same metrics that another controller has
// registered before. Without a registration nothing is lost but the numbers.
func registered[C prometheus.Collector](c C) C {
	var before prometheus.AlreadyRegisteredError
	if errors.As(metrics.Registry.Register(c), &before) {
		if existing, ok := before.ExistingCollector.(C); ok {
			return existing
		}
	}
	return c
}
