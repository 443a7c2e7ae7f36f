package crashtest

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

const plainFinalizer = "example.org/plain"

// A plain reconciler is right without crossplane-runtime: it chooses names, and believes an
// absence only after a while. Each field that is set makes it wrong.
type plain struct {
	kube client.Client
	api  vmAPI

	// before runs before anything else. It returns true if the reconcile ends there.
	before func(ctx context.Context, b *v1alpha1.Bucket) (bool, error)

	// Steps of a reconcile, in place of the right ones.
	addFinalizer func(ctx context.Context, b *v1alpha1.Bucket) error
	name         func(b *v1alpha1.Bucket) string
	ensure       func(ctx context.Context, b *v1alpha1.Bucket) error
	create       func(ctx context.Context, b *v1alpha1.Bucket) error
	update       func(ctx context.Context, b *v1alpha1.Bucket) error
	remove       func(ctx context.Context, b *v1alpha1.Bucket) error
	confirm      func(ctx context.Context, b *v1alpha1.Bucket) (bool, error)
	conditions   func(b *v1alpha1.Bucket, err error)
	orphans      func(b *v1alpha1.Bucket) bool
	done         func(b *v1alpha1.Bucket, err error) (reconcile.Result, error)

	confirmed int
}

func (r *plain) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	b := &v1alpha1.Bucket{}
	if err := r.kube.Get(ctx, req.NamespacedName, b); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if end, err := r.before(ctx, b); end || err != nil {
		return reconcile.Result{}, err
	}
	if meta.IsPaused(b) {
		return reconcile.Result{}, nil
	}
	if meta.WasDeleted(b) {
		return r.delete(ctx, b)
	}
	if err := r.addFinalizer(ctx, b); err != nil {
		return reconcile.Result{}, err
	}
	err := r.ensure(ctx, b)
	old := b.DeepCopy()
	r.conditions(b, err)
	if slices.Equal(old.Status.Conditions, b.Status.Conditions) {
		return r.done(b, err)
	}
	if err := r.kube.Status().Update(ctx, b); err != nil {
		return reconcile.Result{}, err
	}
	return r.done(b, err)
}

func (r *plain) delete(ctx context.Context, b *v1alpha1.Bucket) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(b, plainFinalizer) {
		return reconcile.Result{}, nil
	}
	if !r.orphans(b) && meta.GetExternalName(b) != "" {
		if err := r.remove(ctx, b); err != nil {
			return reconcile.Result{}, err
		}
		if sure, err := r.confirm(ctx, b); !sure || err != nil {
			return reconcile.Result{RequeueAfter: 5 * time.Second}, err
		}
	}
	controllerutil.RemoveFinalizer(b, plainFinalizer)
	return reconcile.Result{}, client.IgnoreNotFound(r.kube.Update(ctx, b))
}

func (r *plain) observe(ctx context.Context, b *v1alpha1.Bucket) (*vm, error) {
	v := &vm{}
	err := r.api.do(ctx, http.MethodGet, "/vms/"+meta.GetExternalName(b), nil, v)
	if errors.Is(err, errNotFound) {
		return nil, nil //nolint:nilnil // Absence is an answer here, not an error.
	}
	return v, err
}

// rightPlain returns a reconciler that is right.
func rightPlain(p *Process, a vmAPI) *plain {
	r := &plain{kube: p.Manager().GetClient(), api: a}
	r.before = func(context.Context, *v1alpha1.Bucket) (bool, error) { return false, nil }
	r.name = func(b *v1alpha1.Bucket) string { return b.GetName() }
	r.addFinalizer = func(ctx context.Context, b *v1alpha1.Bucket) error {
		changed := controllerutil.AddFinalizer(b, plainFinalizer)
		if meta.GetExternalName(b) == "" {
			meta.SetExternalName(b, r.name(b))
			changed = true
		}
		if !changed {
			return nil
		}
		return r.kube.Update(ctx, b)
	}
	r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
		v, err := r.observe(ctx, b)
		switch {
		case err != nil:
			return err
		case v == nil:
			return r.create(ctx, b)
		case v.Size != sizeOf(b):
			return r.update(ctx, b)
		}
		return nil
	}
	r.create = func(ctx context.Context, b *v1alpha1.Bucket) error {
		return a.do(
			ctx, http.MethodPut, "/vms/"+meta.GetExternalName(b), vm{Owner: string(b.GetUID()), Size: sizeOf(b)}, nil,
		)
	}
	r.update = func(ctx context.Context, b *v1alpha1.Bucket) error {
		return a.do(ctx, http.MethodPatch, "/vms/"+meta.GetExternalName(b), vm{Size: sizeOf(b)}, nil)
	}
	r.remove = func(ctx context.Context, b *v1alpha1.Bucket) error {
		if err := a.do(
			ctx, http.MethodDelete, "/vms/"+meta.GetExternalName(b), nil, nil,
		); !errors.Is(err, errNotFound) {
			r.confirmed = 0
			return err
		}
		return nil
	}
	r.confirm = func(context.Context, *v1alpha1.Bucket) (bool, error) {
		r.confirmed++
		return r.confirmed > 4, nil
	}
	r.conditions = func(b *v1alpha1.Bucket, err error) {
		if err != nil {
			b.SetConditions(xpv2.ReconcileError(errors.New("see the log")), xpv2.Unavailable())
			return
		}
		b.SetConditions(xpv2.ReconcileSuccess(), xpv2.Available())
	}
	r.orphans = func(b *v1alpha1.Bucket) bool {
		p := b.GetManagementPolicies()
		return !slices.Contains(p, xpv2.ManagementActionAll) && !slices.Contains(p, xpv2.ManagementActionDelete)
	}
	r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
		return reconcile.Result{RequeueAfter: time.Minute}, err
	}
	return r
}

// plainProvider returns a provider with a plain reconciler that change makes wrong.
func plainProvider(t testing.TB, change func(p *Process, r *plain)) Provider[*vmCloud] {
	t.Helper()
	p := vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
		r := rightPlain(p, a)
		change(p, r)
		return r, nil
	})
	p.Scenarios = slices.DeleteFunc(Scenarios(), func(l Scenario) bool { return l.Name == "same-name" })
	return p
}
