package crashtest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/confirm"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

// A planted fault is a small change of a provider that is right.
type planted struct {
	name string

	// at is the scenario and the fault with which it is found.
	at string

	// want lists verdicts. The change must get at least one of them.
	want     []Verdict
	provider func(t testing.TB) Provider[*vmCloud]
}

// A client is a vmClient whose methods a change can replace.
type changed struct {
	*vmClient

	process *Process
	observe func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error)
	create  func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error)
	update  func(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error)
	remove  func(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error)
	find    func(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error)
}

func newChanged(p *Process, a vmAPI, named bool) *changed {
	c := &vmClient{api: a, named: named}
	return &changed{
		vmClient: c, process: p, observe: c.Observe, create: c.Create, update: c.Update, remove: c.Delete, find: c.Find,
	}
}

func (c *changed) Observe(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	return c.observe(ctx, mg)
}

func (c *changed) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	return c.create(ctx, mg)
}

func (c *changed) Update(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
	return c.update(ctx, mg)
}

func (c *changed) Delete(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
	return c.remove(ctx, mg)
}

func (c *changed) Find(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
	return c.find(ctx, mg, a)
}

func (c *changed) path(mg resource.Managed) string { return "/vms/" + meta.GetExternalName(mg) }

// upstreamWith returns a provider with upstream's reconciler, a changed client, and further
// options.
func upstreamWith(
	named bool, change func(c *changed), o ...upstream.ReconcilerOption,
) func(t testing.TB) Provider[*vmCloud] {
	return func(t testing.TB) Provider[*vmCloud] {
		t.Helper()
		p := vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
			c := newChanged(p, a, named)
			change(c)
			all := []upstream.ReconcilerOption{
				upstream.WithManagementPolicies(),
				upstream.WithExternalConnector(connect(c)),
				upstream.WithInitializers(),
			}
			if named {
				all = append(
					all,
					upstream.WithInitializers(upstream.NewNameAsExternalName(p.Manager().GetClient())),
					upstream.WithDeterministicExternalName(true),
				)
			}
			return upstream.NewReconciler(p.Manager(), v1alpha1.BucketManagedKind(), append(all, o...)...), nil
		})
		// Upstream's reconciler isn't right in these lives by itself.
		p.Scenarios = slices.DeleteFunc(Scenarios(), func(l Scenario) bool { return l.Name == "same-name" })
		if !named {
			p.Accept = []Verdict{Stopped}
		}
		return p
	}
}

// graftWith returns a provider with Graft's reconciler and a changed client.
func graftWith(named bool, change func(c *changed)) func(t testing.TB) Provider[*vmCloud] {
	return func(t testing.TB) Provider[*vmCloud] {
		t.Helper()
		return vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
			c := newChanged(p, a, named)
			change(c)
			all := []managed.ReconcilerOption{
				managed.WithManagementPolicies(),
				managed.WithExternalConnector(connect(c)),
				managed.WithInitializers(),
				reservation.With("default"),
			}
			if named {
				all = append(
					all,
					managed.WithInitializers(managed.NewNameAsExternalName(p.Manager().GetClient())),
					managed.WithDeterministicExternalName(true),
					confirm.With(3, 5*time.Second),
				)
			} else {
				all = append(all, resolve.With(resolve.FindWithConnector(connect(c))))
			}
			return managed.NewReconciler(p.Manager(), v1alpha1.BucketManagedKind(), all...), nil
		})
	}
}

func plainWith(change func(p *Process, r *plain)) func(t testing.TB) Provider[*vmCloud] {
	return func(t testing.TB) Provider[*vmCloud] {
		t.Helper()
		return plainProvider(t, change)
	}
}

// wrapped returns a provider with upstream's reconciler inside another one.
func wrapped(
	named bool, wrap func(p *Process, inner reconcile.Reconciler) reconcile.Reconciler,
) func(t testing.TB) Provider[*vmCloud] {
	return func(t testing.TB) Provider[*vmCloud] {
		t.Helper()
		p := upstreamWith(named, func(*changed) {})(t)
		start := p.Start
		p.Start = func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
			r, err := start(p, c)
			return wrap(p, r), err
		}
		return p
	}
}

// onStatus reports whether an error is a status of the external system.
func onStatus(code int) func(error) bool {
	return func(err error) bool {
		var s statusError
		return errors.As(err, &s) && int(s) == code
	}
}

func onNetwork(err error) bool {
	var e net.Error
	return errors.As(err, &e)
}

func onTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// renamed returns a copy of a managed resource with another external name.
func renamed(mg resource.Managed, name string) resource.Managed {
	o, _ := mg.DeepCopyObject().(resource.Managed)
	meta.SetExternalName(o, name)
	return o
}

// observes returns a change of what Observe returns.
func observes(change func(mg resource.Managed, o *managed.ExternalObservation, err *error)) func(c *changed) {
	return func(c *changed) {
		c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
			o, err := c.vmClient.Observe(ctx, mg)
			change(mg, &o, &err)
			return o, err
		}
	}
}

// takesForAbsent returns a change of Observe, for which some errors mean not found.
func takesForAbsent(match func(error) bool) func(c *changed) {
	return func(c *changed) {
		c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
			o, err := c.vmClient.Observe(ctx, mg)
			if match(err) {
				return managed.ExternalObservation{}, nil
			}
			return o, err
		}
	}
}

// givesUp returns a change of a reconciler that doesn't repeat a reconcile after some
// errors.
func givesUp(match func(error) bool) func(p *Process, r *plain) {
	return func(_ *Process, r *plain) {
		r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
			if match(err) {
				return reconcile.Result{}, nil
			}
			return reconcile.Result{RequeueAfter: time.Minute}, err
		}
	}
}

// marks returns a change of a reconciler that writes an annotation before a call, and takes
// it for the result of the call afterwards.
func marks(key string, of func(r *plain) *func(context.Context, *v1alpha1.Bucket) error) func(p *Process, r *plain) {
	return func(_ *Process, r *plain) {
		call := *of(r)
		*of(r) = func(ctx context.Context, b *v1alpha1.Bucket) error {
			value := fmt.Sprint(sizeOf(b))
			if b.GetAnnotations()[key] == value {
				return nil
			}
			meta.AddAnnotations(b, map[string]string{key: value})
			if err := r.kube.Update(ctx, b); err != nil {
				return err
			}
			return call(ctx, b)
		}
	}
}

// remembers returns a change of a reconciler that makes a call once in a process.
func remembers(of func(r *plain) *func(context.Context, *v1alpha1.Bucket) error) func(p *Process, r *plain) {
	return func(_ *Process, r *plain) {
		call, done := *of(r), map[string]bool{}
		*of(r) = func(ctx context.Context, b *v1alpha1.Bucket) error {
			key := fmt.Sprint(b.GetUID(), sizeOf(b))
			if done[key] {
				return nil
			}
			done[key] = true
			return call(ctx, b)
		}
	}
}

// swallows returns a change of a reconciler that ignores errors of a call.
func swallows(of func(r *plain) *func(context.Context, *v1alpha1.Bucket) error) func(p *Process, r *plain) {
	return func(_ *Process, r *plain) {
		call := *of(r)
		*of(r) = func(ctx context.Context, b *v1alpha1.Bucket) error {
			if err := call(ctx, b); errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		}
	}
}

func creates(r *plain) *func(context.Context, *v1alpha1.Bucket) error { return &r.create }

func updates(r *plain) *func(context.Context, *v1alpha1.Bucket) error { return &r.update }

func removes(r *plain) *func(context.Context, *v1alpha1.Bucket) error { return &r.remove }

// withForeign adds a resource of another owner to the external system.
func withForeign(of func(t testing.TB) Provider[*vmCloud]) func(t testing.TB) Provider[*vmCloud] {
	return func(t testing.TB) Provider[*vmCloud] {
		t.Helper()
		p := of(t)
		p.Cloud = func() *vmCloud {
			c := newVMCloud()
			c.Create("foreign", vm{ID: "foreign", Size: 9})
			return c
		}
		return p
	}
}

// plantedFaults returns the faults that the default budget has to find.
func plantedFaults() []planted {
	var global sync.Mutex
	out := []planted{
		// The name.
		{"NameStoredInMemoryOnly", "create/undisturbed", []Verdict{
			LostName, SecondResource, NeverReady,
		}, upstreamWith(false, func(c *changed) {
			name := ""
			c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				o := renamed(mg, name)
				e, err := c.vmClient.Create(ctx, o)
				name = meta.GetExternalName(o)
				return e, err
			}
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				mg.SetConditions(xpv2.Available())
				return c.vmClient.Observe(ctx, renamed(mg, name))
			}
		})},
		{"NameSetByObserve", "create/undisturbed", []Verdict{
			LostName, Stopped, NeverReady,
		}, upstreamWith(false, func(c *changed) {
			c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				o, _ := mg.DeepCopyObject().(resource.Managed)
				return c.vmClient.Create(ctx, o)
			}
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				f, err := c.Find(ctx, mg, asyncstate.Attempt{Started: time.Now()})
				if err != nil || f.ExternalName == "" {
					return managed.ExternalObservation{}, err
				}
				meta.SetExternalName(mg, f.ExternalName)
				return c.vmClient.Observe(ctx, mg)
			}
		})},
		{"NameOfTheObjectObserved", "create/undisturbed", []Verdict{
			SecondResource, LostName, NeverReady, Leak,
		}, graftWith(false, func(c *changed) {
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				return c.vmClient.Observe(ctx, renamed(mg, mg.GetName()))
			}
		})},
		{"NameOfTheObjectDeleted", "delete/undisturbed", []Verdict{NeverDeleted}, graftWith(false, func(c *changed) {
			c.remove = func(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
				return c.vmClient.Delete(ctx, renamed(mg, mg.GetName()))
			}
		})},
		{"NameOfTheObjectUpdated", "update/undisturbed", []Verdict{
			LostUpdate, NeverReady, HotLoop,
		}, graftWith(false, func(c *changed) {
			c.update = func(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
				return c.vmClient.Update(ctx, renamed(mg, mg.GetName()))
			}
		})},
		{
			"NameNeverChosen",
			"create/undisturbed",
			[]Verdict{NeverReady, Stopped, LostName},
			upstreamWith(true, func(*changed) {}, upstream.WithInitializers()),
		},
		{"NameResetByInitializer", "rename/undisturbed", []Verdict{
			LostName, Leak, NeverReady,
		}, upstreamWith(true, func(c *changed) {
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				if meta.GetExternalName(mg) == mg.GetName() || meta.WasDeleted(mg) {
					return c.vmClient.Observe(ctx, mg)
				}
				meta.SetExternalName(mg, mg.GetName())
				return managed.ExternalObservation{
					ResourceExists: true, ResourceUpToDate: true, ResourceLateInitialized: true,
				}, nil
			}
		})},
		{"NameChangedByUpdate", "update/undisturbed", []Verdict{
			LostName, SecondResource, Leak, NeverReady,
		}, graftWith(true, func(c *changed) {
			c.update = func(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
				meta.SetExternalName(mg, mg.GetName()+"-v2")
				return managed.ExternalUpdate{}, c.api.do(
					ctx, http.MethodPut, c.path(mg), vm{Owner: string(mg.GetUID()), Size: sizeOf(mg)}, nil,
				)
			}
		})},
		{"NewNameAfterATimeout", "create/reset-after", []Verdict{
			SecondResource, Leak,
		}, plainWith(func(_ *Process, r *plain) {
			create := r.create
			r.create = func(ctx context.Context, b *v1alpha1.Bucket) error {
				err := create(ctx, b)
				if onNetwork(err) {
					meta.SetExternalName(b, meta.GetExternalName(b)+"x")
					return errors.Wrap(r.kube.Update(ctx, b), err.Error())
				}
				return err
			}
		})},
		{"NewNameAfterNotFound", "update-in-create/late", []Verdict{
			SecondResource, Leak, NeverReady,
		}, plainWith(func(_ *Process, r *plain) {
			ensure, had := r.ensure, ""
			r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
				if v, err := r.observe(ctx, b); err == nil && v == nil && had == meta.GetExternalName(b) {
					meta.SetExternalName(b, had+"x")
					if err := r.kube.Update(ctx, b); err != nil {
						return err
					}
				}
				had = meta.GetExternalName(b)
				return ensure(ctx, b)
			}
		})},
		{"NameForcedOnRename", "rename/undisturbed", []Verdict{
			LostName, Leak, ActsOnAnothers,
		}, plainWith(func(_ *Process, r *plain) {
			r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
				if n := meta.GetExternalName(b); n == "" || n == b.GetName() {
					return false, nil
				}
				meta.SetExternalName(b, b.GetName())
				return true, r.kube.Update(ctx, b)
			}
		})},
		{"NameDroppedOnConflict", "delete-in-create/undisturbed", []Verdict{
			SecondResource, Leak, LostName,
		}, plainWith(func(_ *Process, r *plain) {
			postsThenStores(r)
		})},
		{"NameIgnoredAfterRename", "rename-delete/undisturbed", []Verdict{
			ActsOnAnothers, Leak,
		}, graftWith(true, func(c *changed) {
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				o := renamed(mg, mg.GetName())
				e, err := c.vmClient.Observe(ctx, o)
				mg.SetConditions(o.GetCondition(xpv2.TypeReady))
				return e, err
			}
			c.update = func(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
				return c.vmClient.Update(ctx, renamed(mg, mg.GetName()))
			}
			c.remove = func(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
				return c.vmClient.Delete(ctx, renamed(mg, mg.GetName()))
			}
		})},
		{"NameOfAnyResourceAdopted", "credentials/undisturbed", []Verdict{
			ActsOnAnothers, LostName, SecondResource, Leak, LostUpdate,
		}, withForeign(graftWith(false, func(c *changed) {
			c.find = func(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
				return asyncstate.Found("foreign"), nil
			}
		}))},

		// Create.
		{"CreateRetriedAfterAnyError", "create/409-after", []Verdict{
			SecondResource, Leak,
		}, graftWith(false, func(c *changed) {
			c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				if e, err := c.vmClient.Create(ctx, mg); err == nil {
					return e, nil
				}
				return c.vmClient.Create(ctx, mg)
			}
		})},
		{"CreateRetriedAfterATimeout", "create/reset-after", []Verdict{
			SecondResource, Leak,
		}, graftWith(false, func(c *changed) {
			c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				e, err := c.vmClient.Create(ctx, mg)
				if onNetwork(err) {
					return c.vmClient.Create(ctx, mg)
				}
				return e, err
			}
		})},
		{"CreateRetriedAfter500", "create/500-after", []Verdict{
			SecondResource, Leak,
		}, graftWith(false, func(c *changed) {
			c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				e, err := c.vmClient.Create(ctx, mg)
				if onStatus(500)(err) {
					return c.vmClient.Create(ctx, mg)
				}
				return e, err
			}
		})},
		{"CreateErrorIgnored", "create/409-after", []Verdict{
			SecondResource, Leak, NeverReady, Stopped,
		}, upstreamWith(false, func(c *changed) {
			c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				e, _ := c.vmClient.Create(ctx, mg)
				return e, nil
			}
		})},
		{"CreateTwice", "create/undisturbed", []Verdict{SecondResource}, graftWith(false, func(c *changed) {
			c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				if e, err := c.vmClient.Create(ctx, mg); err != nil {
					return e, err
				}
				return c.vmClient.Create(ctx, mg)
			}
		})},
		{"CreateConflictIsFinal", "pause/409-after", []Verdict{NeverReady}, plainWith(givesUp(onStatus(409)))},
		{"CreateRepeatedWithoutAnnouncement", "delete-in-create/crash-inflight", []Verdict{
			SecondResource, Leak,
		}, wrapped(false, func(p *Process, inner reconcile.Reconciler) reconcile.Reconciler {
			return before(p, inner, func(b *v1alpha1.Bucket) bool {
				had := meta.ExternalCreateIncomplete(b)
				meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending)
				return had
			})
		})},
		{"CreateOnlyOnceInAProcess", "create/timeout-before", []Verdict{NeverReady}, plainWith(remembers(creates))},
		{"CreateMarkedBefore", "create/away-after", []Verdict{
			NeverReady,
		}, plainWith(marks("example.org/created", creates))},
		{"CreateErrorSwallowed", "credentials/undisturbed", []Verdict{
			NeverReady,
		}, plainWith(func(p *Process, r *plain) {
			swallows(creates)(p, r)
			r.done = func(*v1alpha1.Bucket, error) (reconcile.Result, error) { return reconcile.Result{}, nil }
		})},
		{"CreateBeforeTheFinalizer", "delete-in-create/undisturbed", []Verdict{
			Leak,
		}, plainWith(func(_ *Process, r *plain) {
			add := r.addFinalizer
			r.addFinalizer = func(ctx context.Context, b *v1alpha1.Bucket) error {
				if meta.GetExternalName(b) == "" {
					meta.SetExternalName(b, b.GetName())
					return r.kube.Update(ctx, b)
				}
				return nil
			}
			ensure := r.ensure
			r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
				if err := ensure(ctx, b); err != nil {
					return err
				}
				return add(ctx, b)
			}
		})},
		{"CreateInABackgroundGoroutine", "delete-in-create/undisturbed", []Verdict{
			Leak, SecondResource, NeverReady, Escaped,
		}, plainWith(func(p *Process, r *plain) {
			create := r.create
			r.create = func(_ context.Context, b *v1alpha1.Bucket) error {
				later := b.DeepCopy()
				go func() {
					time.Sleep(time.Minute)
					_ = create(context.Background(), later)
				}()
				return errors.New("in progress")
			}
		})},
		{"CreatePanicsWithoutAnAnswer", "create/stop-before", []Verdict{Panicked}, graftWith(true, func(c *changed) {
			c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				e, err := c.vmClient.Create(ctx, mg)
				if err != nil {
					panic(err)
				}
				return e, nil
			}
		})},
		{"CreateForgetsTheOwner", "credentials/500-after", []Verdict{
			SecondResource, Leak, Stopped,
		}, graftWith(false, func(c *changed) {
			c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				v := vm{Size: sizeOf(mg)}
				if err := c.api.do(ctx, http.MethodPost, "/vms", v, &v); err != nil {
					return managed.ExternalCreation{}, err
				}
				meta.SetExternalName(mg, v.ID)
				return managed.ExternalCreation{}, nil
			}
		})},

		// Observe.
		{"ObserveCreates", "delete/undisturbed", []Verdict{
			SecondResource, NeverDeleted, Leak,
		}, graftWith(true, func(c *changed) {
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				o, err := c.vmClient.Observe(ctx, mg)
				if err == nil && !o.ResourceExists && meta.GetExternalName(mg) != "" {
					_, err = c.vmClient.Create(ctx, mg)
					o = managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: true}
				}
				return o, err
			}
		})},
		{"ObserveSaysUpToDate", "update/undisturbed", []Verdict{LostUpdate}, graftWith(true, observes(func(
			_ resource.Managed, o *managed.ExternalObservation, _ *error,
		) {
			o.ResourceUpToDate = true
		}))},
		{"ObserveSaysOutdated", "restart/undisturbed", []Verdict{HotLoop}, graftWith(true, observes(func(
			_ resource.Managed, o *managed.ExternalObservation, _ *error,
		) {
			o.ResourceUpToDate = false
		}))},
		{"ObserveNeverReady", "create/undisturbed", []Verdict{NeverReady}, graftWith(true, observes(func(
			mg resource.Managed, o *managed.ExternalObservation, _ *error,
		) {
			mg.SetConditions(xpv2.Unavailable())
		}))},
		{"ObserveFailsWhenAbsent", "create/undisturbed", []Verdict{NeverReady}, graftWith(true, observes(func(
			_ resource.Managed, o *managed.ExternalObservation, err *error,
		) {
			if *err == nil && !o.ResourceExists {
				*err = errNotFound
			}
		}))},
		{"ObserveFailsWhenDeleted", "delete/undisturbed", []Verdict{FinalizerLeft}, graftWith(true, observes(func(
			mg resource.Managed, o *managed.ExternalObservation, err *error,
		) {
			if *err == nil && !o.ResourceExists && meta.WasDeleted(mg) {
				*err = errNotFound
			}
		}))},
		{"ObserveSaysExists", "create/undisturbed", []Verdict{
			NeverReady, FinalizerLeft,
		}, upstreamWith(true, observes(func(
			_ resource.Managed, o *managed.ExternalObservation, _ *error,
		) {
			o.ResourceExists = true
		}))},
		{"ObserveSaysAbsentWhenDeleted", "delete/undisturbed", []Verdict{Leak}, upstreamWith(true, func(c *changed) {
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				if meta.WasDeleted(mg) {
					return managed.ExternalObservation{}, nil
				}
				return c.vmClient.Observe(ctx, mg)
			}
		})},
		{"ObserveLateInitializesAlways", "create/undisturbed", []Verdict{
			HotLoop, NeverReady,
		}, upstreamWith(true, observes(func(
			_ resource.Managed, o *managed.ExternalObservation, _ *error,
		) {
			o.ResourceLateInitialized = o.ResourceExists
		}))},
		{"ObserveStoresTheTime", "create/undisturbed", []Verdict{HotLoop}, graftWith(true, observes(func(
			mg resource.Managed, o *managed.ExternalObservation, _ *error,
		) {
			meta.AddAnnotations(mg, map[string]string{"example.org/observed": time.Now().Format(time.RFC3339Nano)})
			o.ResourceLateInitialized = o.ResourceExists
		}))},
		{"ObserveSetsAChangingReason", "create/undisturbed", []Verdict{HotLoop}, upstreamWith(true, observes(func(
			mg resource.Managed, o *managed.ExternalObservation, _ *error,
		) {
			if o.ResourceExists {
				mg.SetConditions(xpv2.Available().WithMessage(time.Now().String()))
			}
		}))},
		{"ObserveTouchesTheResource", "create/undisturbed", []Verdict{HotLoop}, graftWith(true, func(c *changed) {
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				o, err := c.vmClient.Observe(ctx, mg)
				if o.ResourceExists {
					err = c.api.do(
						ctx, http.MethodPatch, c.path(mg), vm{Owner: time.Now().String(), Size: sizeOf(mg)}, nil,
					)
				}
				return o, err
			}
		})},
		{"ObservePanicsOnAnError", "credentials/undisturbed", []Verdict{Panicked}, graftWith(true, func(c *changed) {
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				o, err := c.vmClient.Observe(ctx, mg)
				if err != nil {
					panic(err)
				}
				return o, nil
			}
		})},
		{"ObserveRepairsWhilePaused", "pause/undisturbed", []Verdict{
			ActsWhilePaused,
		}, graftWith(true, func(c *changed) {
			var observed atomic.Pointer[client.ObjectKey]
			_ = c.process.Manager().Add(runnable(func(ctx context.Context) error {
				for every := time.NewTicker(30 * time.Second); ; {
					select {
					case <-ctx.Done():
						every.Stop()
						return nil
					case <-every.C:
					}
					key, b := observed.Load(), &v1alpha1.Bucket{}
					if key != nil && c.process.Manager().GetClient().Get(ctx, *key, b) == nil && !meta.WasDeleted(b) {
						_, _ = c.vmClient.Update(ctx, b)
					}
				}
			}))
			c.observe = func(ctx context.Context, o resource.Managed) (managed.ExternalObservation, error) {
				key := client.ObjectKeyFromObject(o)
				observed.Store(&key)
				return c.vmClient.Observe(ctx, o)
			}
		})},
		{"ObserveDeletesTheUnknown", "create/undisturbed", []Verdict{
			ActsOnAnothers,
		}, withForeign(graftWith(true, func(c *changed) {
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				_ = c.api.do(ctx, http.MethodDelete, "/vms/foreign", nil, nil)
				return c.vmClient.Observe(ctx, mg)
			}
		}))},

		// Update.
		{"UpdateDoesNothing", "update/undisturbed", []Verdict{LostUpdate, HotLoop}, graftWith(true, func(c *changed) {
			c.update = func(context.Context, resource.Managed) (managed.ExternalUpdate, error) {
				return managed.ExternalUpdate{}, nil
			}
		})},
		{"UpdateRecreates", "update/undisturbed", []Verdict{SecondResource}, graftWith(true, func(c *changed) {
			c.update = func(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
				if _, err := c.vmClient.Delete(ctx, mg); err != nil {
					return managed.ExternalUpdate{}, err
				}
				_, err := c.vmClient.Create(ctx, mg)
				return managed.ExternalUpdate{}, err
			}
		})},
		{"UpdateCreatesAnother", "update/undisturbed", []Verdict{SecondResource}, graftWith(false, func(c *changed) {
			c.update = func(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
				_, err := c.vmClient.Create(ctx, mg)
				return managed.ExternalUpdate{}, err
			}
		})},
		{"UpdateOfAnother", "update/undisturbed", []Verdict{
			ActsOnAnothers,
		}, withForeign(graftWith(true, func(c *changed) {
			c.update = func(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
				_ = c.api.do(ctx, http.MethodPatch, "/vms/foreign", vm{Size: sizeOf(mg)}, nil)
				return c.vmClient.Update(ctx, mg)
			}
		}))},
		{"UpdateMarkedBefore", "pause/crash-after", []Verdict{
			LostUpdate,
		}, plainWith(marks("example.org/updated", updates))},
		{"UpdateOnlyOnceInAProcess", "pause/reset-before", []Verdict{LostUpdate}, plainWith(remembers(updates))},
		{"SpecOfTheFirstObserve", "update-in-create/undisturbed", []Verdict{
			LostUpdate,
		}, graftWith(false, func(c *changed) {
			// Its first Observe stores the current spec as the applied one.
			const applied = "example.org/applied"
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				o, err := c.vmClient.Observe(ctx, mg)
				if err != nil || !o.ResourceExists {
					return o, err
				}
				size := fmt.Sprint(sizeOf(mg))
				if mg.GetAnnotations()[applied] == "" {
					meta.AddAnnotations(mg, map[string]string{applied: size})
					o.ResourceLateInitialized = true
				}
				o.ResourceUpToDate = mg.GetAnnotations()[applied] == size
				return o, nil
			}
		})},
		{"UpdateErrorSwallowed", "update-in-create/timeout-before", []Verdict{
			LostUpdate,
		}, plainWith(func(p *Process, r *plain) {
			swallows(updates)(p, r)
			r.done = func(*v1alpha1.Bucket, error) (reconcile.Result, error) { return reconcile.Result{}, nil }
		})},
		{"UpdatePanicsOnAnError", "delete-in-update/stop-after", []Verdict{Panicked}, graftWith(true, func(c *changed) {
			c.update = func(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
				u, err := c.vmClient.Update(ctx, mg)
				if err != nil {
					panic(err)
				}
				return u, nil
			}
		})},
		{"UpdateOnlyRightAfterTheStart", "update/undisturbed", []Verdict{LostUpdate}, graftWith(true, func(c *changed) {
			began := time.Now()
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				o, err := c.vmClient.Observe(ctx, mg)
				o.ResourceUpToDate = o.ResourceUpToDate || time.Since(began) > 30*time.Second
				return o, err
			}
		})},
		{"UpdateByGeneration", "pause/undisturbed", []Verdict{LostUpdate}, plainWith(func(_ *Process, r *plain) {
			seen := map[int64]bool{}
			r.before = func(_ context.Context, b *v1alpha1.Bucket) (bool, error) {
				had := seen[b.GetGeneration()] && !meta.WasDeleted(b)
				seen[b.GetGeneration()] = true
				return had && len(b.Status.Conditions) > 0 && !meta.IsPaused(b) &&
					meta.GetExternalName(b) == b.GetName(), nil
			}
		})},

		// Delete.
		{"DeleteDoesNothing", "delete/undisturbed", []Verdict{NeverDeleted}, graftWith(true, func(c *changed) {
			c.remove = func(context.Context, resource.Managed) (managed.ExternalDelete, error) {
				return managed.ExternalDelete{}, nil
			}
		})},
		{"DeleteOfAnother", "delete/undisturbed", []Verdict{
			ActsOnAnothers,
		}, withForeign(graftWith(true, func(c *changed) {
			c.remove = func(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
				_ = c.api.do(ctx, http.MethodDelete, "/vms/foreign", nil, nil)
				return c.vmClient.Delete(ctx, mg)
			}
		}))},
		{"DeletePanicsOnAnError", "delete/timeout-after", []Verdict{Panicked}, graftWith(true, func(c *changed) {
			c.remove = func(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
				d, err := c.vmClient.Delete(ctx, mg)
				if err != nil {
					panic(err)
				}
				return d, nil
			}
		})},
		{
			"DeleteOnlyOnceInAProcess",
			"credentials-delete/undisturbed",
			[]Verdict{NeverDeleted, Leak},
			plainWith(remembers(removes)),
		},
		{
			"DeleteMarkedBefore",
			"credentials-delete/undisturbed",
			[]Verdict{NeverDeleted, Leak},
			plainWith(marks("example.org/deleted", removes)),
		},
		{"DeleteErrorSwallowed", "credentials-delete/undisturbed", []Verdict{Leak, NeverDeleted}, plainWith(func(
			p *Process, r *plain,
		) {
			swallows(removes)(p, r)
			r.confirm = func(context.Context, *v1alpha1.Bucket) (bool, error) { return true, nil }
		})},
		{"DeleteFailsWhenAbsent", "delete/undisturbed", []Verdict{FinalizerLeft}, plainWith(func(_ *Process, r *plain) {
			r.remove = func(ctx context.Context, b *v1alpha1.Bucket) error {
				return r.api.do(ctx, http.MethodDelete, "/vms/"+meta.GetExternalName(b), nil, nil)
			}
		})},
		{"DeleteUnconfirmed", "delete-in-create/crash-inflight", []Verdict{Leak}, plainWith(func(_ *Process, r *plain) {
			r.confirm = func(context.Context, *v1alpha1.Bucket) (bool, error) { return true, nil }
		})},
		{"DeleteWithoutTheCall", "delete/undisturbed", []Verdict{Leak}, plainWith(func(_ *Process, r *plain) {
			r.remove = func(context.Context, *v1alpha1.Bucket) error { return nil }
		})},
		{"DeleteAfterTheFinalizer", "credentials-delete/undisturbed", []Verdict{
			Leak,
		}, plainWith(func(_ *Process, r *plain) {
			r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
				if !meta.WasDeleted(b) || r.orphans(b) {
					return false, nil
				}
				controllerutil.RemoveFinalizer(b, plainFinalizer)
				if err := r.kube.Update(ctx, b); client.IgnoreNotFound(err) != nil {
					return true, err
				}
				return true, r.remove(ctx, b)
			}
		})},
		{"DeleteIgnoresPolicies", "orphan/undisturbed", []Verdict{
			ActsOnAnothers,
		}, plainWith(func(_ *Process, r *plain) {
			r.orphans = func(*v1alpha1.Bucket) bool { return false }
		})},
		{"DeleteOrphansAlways", "delete/undisturbed", []Verdict{Leak}, plainWith(func(_ *Process, r *plain) {
			r.orphans = func(*v1alpha1.Bucket) bool { return true }
		})},
		{"DeleteByPrefix", "rename/undisturbed", []Verdict{ActsOnAnothers}, plainWith(func(p *Process, r *plain) {
			r.remove = func(context.Context, *v1alpha1.Bucket) error { return nil }
			r.update = func(ctx context.Context, b *v1alpha1.Bucket) error {
				for _, n := range []string{"one", "one-second"} {
					if err := r.api.do(ctx, http.MethodDelete, "/vms/"+n, nil, nil); err != nil &&
						!errors.Is(err, errNotFound) {
						return err
					}
				}
				return r.create(ctx, b)
			}
			r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
				if meta.GetExternalName(b) == "one-second" {
					_ = r.api.do(ctx, http.MethodDelete, "/vms/one", nil, nil)
				}
				return false, nil
			}
		})},
		{"DeleteNotAtAll", "delete/undisturbed", []Verdict{NeverDeleted}, wrapped(true, func(
			p *Process, inner reconcile.Reconciler,
		) reconcile.Reconciler {
			return before(p, inner, func(b *v1alpha1.Bucket) bool {
				if meta.WasDeleted(b) {
					b.SetAnnotations(map[string]string{
						"crossplane.io/external-name":          meta.GetExternalName(b),
						meta.AnnotationKeyReconciliationPaused: "true",
					})
					return true
				}
				return false
			})
		})},

		// The finalizer.
		{
			"FinalizerNever", "delete/undisturbed",
			[]Verdict{Leak},
			upstreamWith(true, func(*changed) {}, upstream.WithFinalizer(resource.FinalizerFns{
				AddFinalizerFn:    func(context.Context, resource.Object) error { return nil },
				RemoveFinalizerFn: func(context.Context, resource.Object) error { return nil },
			})),
		},
		{
			"FinalizerNeverRemoved", "delete/undisturbed",
			[]Verdict{FinalizerLeft},
			upstreamWith(true, func(c *changed) {}, upstream.WithFinalizer(resource.FinalizerFns{
				AddFinalizerFn: func(_ context.Context, o resource.Object) error {
					meta.AddFinalizer(o, "example.org/stays")
					return nil
				},
				RemoveFinalizerFn: func(context.Context, resource.Object) error { return nil },
			})),
		},
		{"FinalizerNeverRemovedByHand", "delete/undisturbed", []Verdict{
			FinalizerLeft,
		}, plainWith(func(_ *Process, r *plain) {
			r.confirm = func(context.Context, *v1alpha1.Bucket) (bool, error) { return false, nil }
		})},
		{"FinalizerTwo", "delete/undisturbed", []Verdict{FinalizerLeft}, plainWith(func(_ *Process, r *plain) {
			add := r.addFinalizer
			r.addFinalizer = func(ctx context.Context, b *v1alpha1.Bucket) error {
				if controllerutil.AddFinalizer(b, "example.org/second") {
					if err := r.kube.Update(ctx, b); err != nil {
						return err
					}
				}
				return add(ctx, b)
			}
		})},
		{"FinalizerNeverByHand", "delete/undisturbed", []Verdict{Leak}, plainWith(func(_ *Process, r *plain) {
			r.addFinalizer = func(ctx context.Context, b *v1alpha1.Bucket) error {
				if meta.GetExternalName(b) != "" {
					return nil
				}
				meta.SetExternalName(b, b.GetName())
				return r.kube.Update(ctx, b)
			}
		})},
		{"FinalizerInMemoryOnly", "delete/undisturbed", []Verdict{Leak}, plainWith(func(_ *Process, r *plain) {
			r.addFinalizer = func(ctx context.Context, b *v1alpha1.Bucket) error {
				if meta.GetExternalName(b) == "" {
					meta.SetExternalName(b, b.GetName())
					if err := r.kube.Update(ctx, b); err != nil {
						return err
					}
				}
				controllerutil.AddFinalizer(b, plainFinalizer)
				return nil
			}
		})},
		{"FinalizerConflictIgnored", "delete-in-create/timeout-before", []Verdict{
			Leak,
		}, plainWith(func(_ *Process, r *plain) {
			r.addFinalizer = func(ctx context.Context, b *v1alpha1.Bucket) error {
				controllerutil.AddFinalizer(b, plainFinalizer)
				if meta.GetExternalName(b) == "" {
					meta.SetExternalName(b, b.GetName())
					_ = r.kube.Update(ctx, b)
				}
				return nil
			}
		})},

		// Reconciles.
		{"ReconcileAtOnceAlways", "create/undisturbed", []Verdict{HotLoop}, plainWith(func(_ *Process, r *plain) {
			r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
				return reconcile.Result{RequeueAfter: time.Second}, err
			}
		})},
		{"ReconcileWithBackoffAlways", "create/undisturbed", []Verdict{HotLoop}, plainWith(func(_ *Process, r *plain) {
			r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
				return reconcile.Result{Requeue: true}, err
			}
		})},
		{
			"ReconcilePollsEachSecond",
			"create/undisturbed",
			[]Verdict{HotLoop},
			upstreamWith(true, func(*changed) {}, upstream.WithPollInterval(time.Second)),
		},
		{"ReconcileEachSecondWhilePaused", "pause/undisturbed", []Verdict{HotLoop}, wrapped(true, func(
			p *Process, inner reconcile.Reconciler,
		) reconcile.Reconciler {
			return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				b := &v1alpha1.Bucket{}
				if err := p.Manager().GetClient().Get(ctx, req.NamespacedName, b); err == nil && meta.IsPaused(b) {
					return reconcile.Result{RequeueAfter: time.Second}, nil
				}
				return inner.Reconcile(ctx, req)
			})
		})},
		{"ReconcileAtOnceAfterAnError", "credentials/undisturbed", []Verdict{
			HotLoop,
		}, plainWith(func(_ *Process, r *plain) {
			r.done = func(_ *v1alpha1.Bucket, err error) (reconcile.Result, error) {
				if err != nil {
					return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
				}
				return reconcile.Result{RequeueAfter: time.Minute}, nil
			}
		})},
		{
			"ReconcileTimesOutTooEarly",
			"create/undisturbed",
			[]Verdict{NeverReady},
			upstreamWith(true, func(*changed) {}, upstream.WithTimeout(50*time.Millisecond)),
		},
		{"ReconcileFailsWithoutItsObject", "delete/undisturbed", []Verdict{HotLoop}, wrapped(true, func(
			p *Process, inner reconcile.Reconciler,
		) reconcile.Reconciler {
			return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				if err := p.Manager().GetClient().Get(ctx, req.NamespacedName, &v1alpha1.Bucket{}); err != nil {
					return reconcile.Result{}, err
				}
				return inner.Reconcile(ctx, req)
			})
		})},
		{"ReconcileSwallowsErrors", "delete/undisturbed", []Verdict{
			NeverReady, NeverDeleted, FinalizerLeft, Leak, Stopped,
		}, wrapped(true, func(_ *Process, inner reconcile.Reconciler) reconcile.Reconciler {
			return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				_, _ = inner.Reconcile(ctx, req)
				return reconcile.Result{}, nil
			})
		})},
		{"ReconcilePanicsTheSecondTime", "create/undisturbed", []Verdict{Panicked}, wrapped(true, func(
			_ *Process, inner reconcile.Reconciler,
		) reconcile.Reconciler {
			n := 0
			return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				if n++; n == 2 {
					panic("nil map")
				}
				return inner.Reconcile(ctx, req)
			})
		})},
		{"ReconcileStopsOnConflict", "credentials/stale", []Verdict{NeverReady}, func(t testing.TB) Provider[*vmCloud] {
			t.Helper()
			p := plainProvider(t, func(*Process, *plain) {})
			start := p.Start
			p.Start = func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
				inner, err := start(p, c)
				return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					r, err := inner.Reconcile(ctx, req)
					if kerrors.IsConflict(err) {
						return reconcile.Result{}, nil
					}
					return r, err
				}), err
			}
			return p
		}},
		{"ReconcileIgnoresPause", "pause/undisturbed", []Verdict{
			ActsWhilePaused,
		}, plainWith(func(_ *Process, r *plain) {
			r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
				if !meta.IsPaused(b) || meta.WasDeleted(b) {
					return false, nil
				}
				return true, r.ensure(ctx, b)
			}
		})},
		{"ReconcileDeletesItsObject", "pause/500-before", []Verdict{
			NeverReady, SecondResource, Leak,
		}, plainWith(func(_ *Process, r *plain) {
			ensure := r.ensure
			r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
				err := ensure(ctx, b)
				if onStatus(500)(err) {
					return r.kube.Delete(ctx, b)
				}
				return err
			}
		})},
		{"StatusHasTheTime", "create/undisturbed", []Verdict{HotLoop}, plainWith(func(_ *Process, r *plain) {
			set := r.conditions
			r.conditions = func(b *v1alpha1.Bucket, err error) {
				set(b, err)
				b.Status.AtProvider.State = time.Now().String()
				b.SetConditions(xpv2.Available().WithMessage(time.Now().String()))
			}
		})},
		{"AnnotationHasTheTime", "create/undisturbed", []Verdict{HotLoop}, plainWith(func(_ *Process, r *plain) {
			r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
				if meta.WasDeleted(b) || meta.IsPaused(b) {
					return false, nil
				}
				meta.AddAnnotations(b, map[string]string{"example.org/seen": time.Now().String()})
				return false, r.kube.Update(ctx, b)
			}
		})},
		{"ReadyBeforeTheCreate", "credentials/500-before", []Verdict{NeverReady}, plainWith(func(p *Process, r *plain) {
			givesUp(onStatus(500))(p, r)
			r.conditions = func(b *v1alpha1.Bucket, _ error) {
				b.SetConditions(xpv2.ReconcileSuccess(), xpv2.Available())
			}
		})},
		{"ReadyNeverAgain", "credentials/undisturbed", []Verdict{NeverReady}, plainWith(func(_ *Process, r *plain) {
			set := r.conditions
			r.conditions = func(b *v1alpha1.Bucket, err error) {
				if c := b.GetCondition(xpv2.TypeReady); c.Reason == xpv2.ReasonUnavailable {
					return
				}
				set(b, err)
			}
		})},
		{"SyncedNeverAgain", "credentials/undisturbed", []Verdict{NeverReady}, plainWith(func(_ *Process, r *plain) {
			set := r.conditions
			r.conditions = func(b *v1alpha1.Bucket, err error) {
				was := b.GetCondition(xpv2.TypeSynced)
				set(b, err)
				if was.Reason == xpv2.ReasonReconcileError {
					b.SetConditions(was)
				}
			}
		})},

		// Options left out.
		{
			"WithoutDeterministicExternalName",
			"update-in-create/away-after",
			[]Verdict{Stopped},
			upstreamWith(true, func(*changed) {}, upstream.WithDeterministicExternalName(false)),
		},
		{"WithoutManagementPolicies", "orphan/undisturbed", []Verdict{
			ActsOnAnothers, NeverDeleted, NeverReady,
		}, func(t testing.TB) Provider[*vmCloud] {
			return vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
				return managed.NewReconciler(p.Manager(), v1alpha1.BucketManagedKind(),
					managed.WithExternalConnector(connect(&vmClient{api: a, named: true})),
					managed.WithInitializers(managed.NewNameAsExternalName(p.Manager().GetClient())),
					managed.WithDeterministicExternalName(true),
					reservation.With("default"),
					confirm.With(3, 5*time.Second)), nil
			})
		}},
		{"WithoutReservation", "same-name/undisturbed", []Verdict{
			ActsOnAnothers,
		}, func(t testing.TB) Provider[*vmCloud] {
			return vmProvider(t, upstreamNamed)
		}},
		{"WithoutResolver", "create/away-after", []Verdict{Stopped}, func(t testing.TB) Provider[*vmCloud] {
			p := upstreamWith(false, func(*changed) {})(t)
			p.Accept = nil
			return p
		}},

		// Goroutines and locks.
		{"GoroutineInEachConnect", "create/undisturbed", []Verdict{Escaped}, graftWith(true, func(c *changed) {
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				go func() { select {} }()
				return c.vmClient.Observe(ctx, mg)
			}
		})},
		{"TickerWithoutStop", "create/undisturbed", []Verdict{Escaped}, graftWith(true, func(c *changed) {
			go func() {
				for range time.Tick(time.Hour) {
					_ = c.named
				}
			}()
		})},
		{"LockHeldAcrossACrash", "create/crash-before", []Verdict{Escaped}, graftWith(true, func(c *changed) {
			c.create = func(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
				global.Lock()
				defer global.Unlock()
				return c.vmClient.Create(ctx, mg)
			}
		})},
		{"LockHeldAfterAnError", "credentials/undisturbed", []Verdict{Escaped}, graftWith(true, func(c *changed) {
			var mu sync.Mutex
			c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
				mu.Lock()
				o, err := c.vmClient.Observe(ctx, mg)
				if err != nil {
					return o, err
				}
				mu.Unlock()
				return o, nil
			}
		})},
		{
			"WaitsForAnAnswerWithoutAContext", "credentials/undisturbed",
			[]Verdict{NeverReady, Escaped},
			graftWith(true, func(c *changed) {
				ready := make(chan struct{}, 1)
				ready <- struct{}{}
				c.observe = func(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
					<-ready
					o, err := c.vmClient.Observe(ctx, mg)
					if err == nil {
						ready <- struct{}{}
					}
					return o, err
				}
			}),
		},
	}

	// Errors that are taken for something else.
	kinds := []struct {
		name, creates, deletes string
		match                  func(error) bool
	}{
		{"401", "credentials/undisturbed", "credentials-delete/undisturbed", onStatus(401)},
		{"429", "create/429-before", "delete/429-before", onStatus(429)},
		{"500", "create/500-before", "delete/500-before", onStatus(500)},
		{"ATimeout", "create/timeout-before", "delete/timeout-before", onTimeout},
		{"ANetworkError", "create/timeout-before", "delete/timeout-before", onNetwork},
	}
	for _, k := range kinds {
		out = append(out,
			planted{
				"AbsentOn" + k.name, k.deletes, []Verdict{Leak, Stopped}, upstreamWith(true, takesForAbsent(k.match)),
			},
			planted{"GivesUpOn" + k.name, k.creates, []Verdict{NeverReady, LostUpdate}, plainWith(givesUp(k.match))},
		)
	}
	return out
}

// before returns a reconciler that changes the object before the inner one sees it, unless
// the write fails.
func before(p *Process, inner reconcile.Reconciler, change func(b *v1alpha1.Bucket) bool) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		b := &v1alpha1.Bucket{}
		if err := p.Manager().GetClient().Get(ctx, req.NamespacedName, b); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if change(b) {
			if err := p.Manager().GetClient().Update(ctx, b); err != nil {
				return reconcile.Result{}, err
			}
		}
		return inner.Reconcile(ctx, req)
	})
}

// postsThenStores makes a reconciler create resources with names of the external system,
// and store the name afterwards.
func postsThenStores(r *plain) {
	r.addFinalizer = func(ctx context.Context, b *v1alpha1.Bucket) error {
		if controllerutil.AddFinalizer(b, plainFinalizer) {
			return r.kube.Update(ctx, b)
		}
		return nil
	}
	ensure := r.ensure
	r.ensure = func(ctx context.Context, b *v1alpha1.Bucket) error {
		if meta.GetExternalName(b) != "" {
			return ensure(ctx, b)
		}
		v := vm{Owner: string(b.GetUID()), Size: sizeOf(b)}
		if err := r.api.do(ctx, http.MethodPost, "/vms", v, &v); err != nil {
			return err
		}
		meta.SetExternalName(b, v.ID)
		if err := r.kube.Update(ctx, b); err != nil && !kerrors.IsConflict(err) {
			return err
		}
		return nil
	}
}

type runnable func(ctx context.Context) error

func (r runnable) Start(ctx context.Context) error { return r(ctx) }

// search runs the cases of a selection until a planted fault gets its verdict. It returns the case in which it does.
func (f planted) search(t *testing.T, patience time.Duration, o ...Option) (string, bool) {
	t.Helper()
	s, err := newSweep(t, f.provider(t), o)
	if err != nil {
		t.Fatal(err)
	}
	s.patience = patience
	s.enough = func(r *Result) bool {
		return slices.ContainsFunc(r.Violations, func(v oracle.Violation) bool {
			return slices.Contains(f.want, v.Verdict) && !slices.Contains(s.Accept, v.Verdict)
		})
	}
	rs, _, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rs, s.enough)
	if i < 0 {
		return "", false
	}
	return rs[i].Name, true
}

// TestPlantedFaults proves that each planted fault gets its verdict by the fault that is recorded for it.
func TestPlantedFaults(t *testing.T) {
	for _, f := range slices.Concat(plantedFaults(), plantedOutside()) {
		t.Run(f.name, func(t *testing.T) {
			scenario, name, _ := strings.Cut(f.at, "/")
			only := Only("^" + scenario + "$/^" + name + "$")
			if _, found := f.search(t, 500*time.Millisecond, only, Pairs(0)); !found {
				t.Errorf("Run(...): want one of %v in %s, got none", f.want, f.at)
			}
		})
	}
}
