//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/providerconfig"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	kmeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// tries is how often a provider must have been refused before what it does is
// taken for what it will do for ever.
const tries = 10

// A newTracker is a constructor of usage trackers, upstream's or Graft's.
type newTracker func(c client.Client, of resource.TypedProviderConfigUsage) *resource.ProviderConfigUsageTracker

// protecting is Graft with usages that are protected.
var protecting = flavour{name: "GraftProtecting", graft: true, build: newProtecting}

func newProtecting(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
	return managed.NewReconciler(m, of,
		managed.WithManagementPolicies(),
		managed.WithInitializers(),
		managed.WithCreationGracePeriod(s.grace()),
		managed.WithPollInterval(s.pollInterval()),
		managed.WithTypedExternalConnector(s.connectors.typedFor(of)),
		managed.WithUsageProtection(usageKind()))
}

func usageKind() schema.GroupVersionKind {
	return sample.ProviderConfigKinds(sample.ProviderConfigKind).Usage
}

// A tenancy is a namespace with a Bucket in it, of a provider that logs in with
// the token of the provider config that the Bucket refers to.
type tenancy struct {
	server  server
	world   *cloud.Cloud
	name    string
	bucket  *sample.Bucket
	traffic *traffic
}

// left is what a user finds.
type left struct {
	// Namespace is its phase, and Bucket what Synced says of it, unless they are
	// gone.
	Namespace, Bucket string
	// External is how many external resources there are.
	External int
}

// A namespace is deleted with all that is in it. The API server creates nothing in
// it any more, and the namespace controller deletes in no particular order. The usage
// of the provider config is therefore deleted while the Bucket waits for its external
// resource, and can't be created again. That blocks the deletion of the Bucket. A
// Bucket that never connected has no finalizer yet, and is deleted. So is a Bucket
// whose usage is protected.
func TestTerminatingNamespace(t *testing.T) {
	nothing := left{Namespace: gone, Bucket: gone}
	stuck := left{Namespace: string(corev1.NamespaceTerminating), Bucket: "False/ReconcileError", External: 1}

	refused := []string{"connect failed", "providerconfigusages", "is forbidden", "because it is being terminated"}

	// What is to be found of it, and what Synced says of it if it is there.
	type found struct {
		left left
		says []string
	}

	cases := map[string]struct {
		reason string
		refers xpv2.ProviderConfigReference
		// connects is false if the provider config doesn't exist.
		connects bool
		// upstream and graft are what is found once the external system has deleted
		// the external resource. If usages are protected nothing is left.
		upstream, graft found
		// moves is whether the Bucket is then pointed to a provider config that
		// isn't in the namespace, and moved what is found after that.
		moves                        bool
		upstreamWhenMoved, whenMoved found
	}{
		"ClusterProviderConfig": {
			reason:   "With upstream's tracker the Bucket can't connect any more, and nothing is deleted. With Graft's everything is deleted.",
			refers:   xpv2.ProviderConfigReference{Kind: sample.ClusterProviderConfigKind, Name: "default"},
			connects: true,
			upstream: found{left: stuck, says: refused},
			graft:    found{left: nothing},
		},
		"ProviderConfig": {
			reason: "A provider config in the namespace goes when nothing says any more that it is used. " +
				"It can't come back; but with Graft's tracker the Bucket can be given another one.",
			refers:            xpv2.ProviderConfigReference{Kind: sample.ProviderConfigKind, Name: "own"},
			connects:          true,
			upstream:          found{left: stuck, says: refused},
			graft:             found{left: stuck, says: []string{"connect failed", "cannot get the provider config", "not found"}},
			moves:             true,
			upstreamWhenMoved: found{left: stuck, says: refused},
			whenMoved:         found{left: nothing},
		},
		"NeverConnected": {
			reason:   "What never connected has nothing that keeps it.",
			refers:   xpv2.ProviderConfigReference{Kind: sample.ClusterProviderConfigKind, Name: "missing"},
			upstream: found{left: nothing},
			graft:    found{left: nothing},
		},
	}

	trackers := map[string]newTracker{
		upstream.name: resource.NewProviderConfigUsageTracker,
		graft.name:    managed.NewProviderConfigUsageTracker,

		protecting.name: managed.NewProviderConfigUsageTracker,
	}

	for name, tc := range cases {
		for _, f := range []flavour{upstream, graft, protecting} {
			t.Run(name+"/"+f.name, func(t *testing.T) {
				is := newTenancy(t, tc.refers)
				want, wantMoved, moves, until := tc.upstream, tc.upstreamWhenMoved, tc.moves, is.untilUnused

				switch f.name {
				case graft.name:
					want, wantMoved = tc.graft, tc.whenMoved
				case protecting.name:
					want, moves, until = found{left: nothing}, false, is.untilHeld
				}

				check := func(want found) {
					t.Helper()

					got, says := is.left(t)
					if diff := cmp.Diff(want.left, got); diff != "" {
						t.Errorf("\n%s\n-want, +got:\n%s\nSynced: %s", tc.reason, diff, says)
					}

					for _, w := range want.says {
						if !strings.Contains(says, w) {
							t.Errorf("\n%s\nSynced: want %q in it, got %q", tc.reason, w, says)
						}
					}
				}

				p := is.start(t, f, trackers[f.name])
				is.untilUsed(t, tc.connects)

				letGo := is.hold()
				must(t, "Delete()", is.server.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: is.name}}))
				until(t)
				letGo()

				is.settle(t)
				check(want)

				if moves {
					is.server.merge(t, fmt.Sprintf(`{"spec":{"providerConfigRef":{"kind":%q,"name":"default"}}}`, sample.ClusterProviderConfigKind), is.bucket)
					is.settle(t)
					check(wantMoved)
				}

				// The provider is replaced by one with Graft's tracker, and what was
				// stuck goes.
				p.stop()
				is.start(t, graft, trackers[graft.name])
				is.settle(t)
				check(found{left: nothing})
			})
		}
	}
}

// A usage that is protected goes with its Bucket, however that goes, and the provider
// config after it.
func TestProtectedUsage(t *testing.T) {
	deleteNamespace := func(ctx context.Context, is *tenancy) error {
		return is.server.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: is.name}})
	}

	// free the Bucket by hand, which leaves its external resource behind.
	free := func(ctx context.Context, is *tenancy) error {
		return is.server.Patch(ctx, is.bucket, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}

	// deleteInForeground deletes the Bucket, and the provider config that it needs.
	deleteInForeground := func(ctx context.Context, is *tenancy) error {
		return errors.Join(
			is.server.Delete(ctx, is.config()),
			is.server.Delete(ctx, is.bucket, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	}

	active := left{Namespace: string(corev1.NamespaceActive), Bucket: gone}

	cases := map[string]struct {
		reason string
		remove func(ctx context.Context, is *tenancy) error
		// frees is whether the Bucket is then freed by hand, and down whether the
		// provider isn't running meanwhile.
		frees, down bool
		want        left
	}{
		"FreedByHand": {
			reason: "If an operator removes the finalizer of the Bucket, the namespace is deleted.",
			remove: deleteNamespace, frees: true,
			want: left{Namespace: gone, Bucket: gone, External: 1},
		},
		"FreedWhileDown": {
			reason: "The namespace is deleted if the provider is only started afterwards, too.",
			remove: deleteNamespace, frees: true, down: true,
			want: left{Namespace: gone, Bucket: gone, External: 1},
		},
		"Foreground": {
			reason: "A foreground deletion waits for the Bucket, not for its usage; and the provider config for both.",
			remove: deleteInForeground,
			want:   active,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			is := newTenancy(t, xpv2.ProviderConfigReference{Kind: sample.ProviderConfigKind, Name: "own"})
			p := is.start(t, protecting, managed.NewProviderConfigUsageTracker)
			is.untilUsed(t, true)
			is.untilProtected(t)

			letGo := is.hold()
			must(t, "cannot delete", tc.remove(t.Context(), is))

			if tc.want.Namespace == gone {
				is.untilHeld(t)
			} else {
				is.server.until(t, "the Bucket waits for its external resource", []sample.Instance{is.bucket}, func(mg sample.Instance) bool {
					return condition(mg, reconciler.TypeDeleting) == "True/"+string(reconciler.ReasonExternalDeleteFailed)
				})
			}

			pc := is.config()
			must(t, "the provider config has gone while it is needed", is.server.Get(t.Context(), client.ObjectKeyFromObject(pc), pc))

			if tc.down {
				p.stop()
			}

			if tc.frees {
				must(t, "cannot free the Bucket", free(t.Context(), is))
			} else {
				letGo()
			}

			if tc.down {
				is.start(t, protecting, managed.NewProviderConfigUsageTracker)
			}

			eventually(t, "all is gone", func() (bool, string) {
				got, says := is.left(t)
				usages, configs := &sample.ProviderConfigUsageList{}, &sample.ProviderConfigList{}
				must(t, "List()", errors.Join(
					is.server.List(t.Context(), usages, client.InNamespace(is.name)),
					is.server.List(t.Context(), configs, client.InNamespace(is.name))))

				n := len(usages.Items) + len(configs.Items)

				return got == tc.want && n == 0, fmt.Sprintf("%s: want %+v, got %+v, usages %+v, %d configs, Synced: %s", tc.reason, tc.want, got, usages.Items, len(configs.Items), says)
			})
		})
	}
}

// gone is how left spells what isn't there.
const gone = "gone"

// newTenancy makes a namespace with a Bucket and provider configs: one of its own,
// and one of the cluster. They go at the test's end, whatever holds them.
func newTenancy(t *testing.T, refers xpv2.ProviderConfigReference) *tenancy {
	t.Helper()

	s := newServer(t)

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
	must(t, "Create()", s.Create(t.Context(), ns))

	own, shared := &sample.ProviderConfig{}, &sample.ClusterProviderConfig{}
	own.Namespace, own.Name, own.Spec.Token = ns.Name, "own", token
	shared.Name, shared.Spec.Token = "default", token

	for _, o := range []client.Object{own, shared} {
		must(t, "Create()", s.Create(t.Context(), o))
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			must(t, "cannot clean up", client.IgnoreNotFound(s.Patch(ctx, o, free)))
			must(t, "cannot clean up", client.IgnoreNotFound(s.Delete(ctx, o)))
		})
	}

	b := sample.NewBucket(ns.Name, "one")
	b.SetProviderConfigReference(&refers)
	s.create(t, b)

	return &tenancy{server: s, world: cloud.New(cloud.Options{Token: token}), name: ns.Name, bucket: b, traffic: &traffic{}}
}

// start a provider of Buckets and of provider configs.
func (is *tenancy) start(t *testing.T, f flavour, track newTracker) *provider {
	t.Helper()

	build := func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
		for kind, o := range map[string]client.Object{
			sample.ProviderConfigKind:        &sample.ProviderConfig{},
			sample.ClusterProviderConfigKind: &sample.ClusterProviderConfig{},
		} {
			must(t, "cannot add a controller", ctrl.NewControllerManagedBy(m).
				For(o).
				Watches(&sample.ProviderConfigUsage{}, &resource.EnqueueRequestForProviderConfig{Kind: kind}).
				Complete(providerconfig.NewReconciler(m, sample.ProviderConfigKinds(kind))))
		}

		if f.name == protecting.name {
			must(t, "cannot add a controller", ctrl.NewControllerManagedBy(m).
				For(&sample.ProviderConfigUsage{}).
				Complete(managed.NewUsageReleaser(m, usageKind())))
		}

		configs := sample.WithProviderConfigs(m.GetClient(), track(m.GetClient(), &sample.ProviderConfigUsage{}))
		s.connectors.typed = sample.NewSync[*sample.Bucket](is.world, configs)

		return f.build(m, of, s)
	}

	return start(t, flavour{name: f.name, graft: f.graft, build: build}, setup{
		connectors: connectors{wait: func() {}},
		traffic:    is.traffic,
		kinds:      []resource.ManagedKind{sample.BucketManagedKind()},
	})
}

// untilUsed waits until the Bucket is available and its provider config can't be
// deleted, or until it couldn't connect.
func (is *tenancy) untilUsed(t *testing.T, connects bool) {
	t.Helper()

	is.server.until(t, "the Bucket was reconciled", []sample.Instance{is.bucket}, func(mg sample.Instance) bool {
		if connects {
			return isAvailable(mg)
		}

		return condition(mg, xpv2.TypeSynced) == "False/ReconcileError"
	})

	if !connects {
		return
	}

	eventually(t, "the provider config is in use", func() (bool, string) {
		pc := is.config()
		must(t, "Get()", is.server.Get(t.Context(), client.ObjectKeyFromObject(pc), pc))

		return pc.GetUsers() == 1 && len(pc.GetFinalizers()) == 1, fmt.Sprintf("%d users, finalizers %v", pc.GetUsers(), pc.GetFinalizers())
	})
}

// untilProtected waits until the Bucket's usage is protected.
func (is *tenancy) untilProtected(t *testing.T) {
	t.Helper()

	eventually(t, "the usage is protected", func() (bool, string) {
		u := &sample.ProviderConfigUsage{}
		must(t, "Get()", is.server.Get(t.Context(), client.ObjectKey{Namespace: is.name, Name: string(is.bucket.GetUID())}, u))

		return meta.FinalizerExists(u, managed.UsageFinalizerName), fmt.Sprintf("%+v", u.ObjectMeta)
	})
}

// config returns the provider config that the Bucket refers to, as far as to be
// read.
func (is *tenancy) config() resource.ProviderConfig {
	ref := is.bucket.GetProviderConfigReference()

	if ref.Kind == sample.ClusterProviderConfigKind {
		pc := &sample.ClusterProviderConfig{}
		pc.Name = ref.Name

		return pc
	}

	return &sample.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Namespace: is.name, Name: ref.Name}}
}

// hold makes the external system refuse to delete anything.
func (is *tenancy) hold() (letGo func()) {
	is.world.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
		if c.Op == cloud.OpDelete {
			return errors.New("the bucket is not empty")
		}

		return nil
	}})

	return func() { is.world.SetHooks(cloud.Hooks{}) }
}

// untilUnused waits until no usage is left in the namespace, nor a provider config.
func (is *tenancy) untilUnused(t *testing.T) {
	t.Helper()

	eventually(t, "usages and provider configs of the namespace are gone", func() (bool, string) {
		usages, configs := &sample.ProviderConfigUsageList{}, &sample.ProviderConfigList{}
		must(t, "List()", errors.Join(
			is.server.List(t.Context(), usages, client.InNamespace(is.name)),
			is.server.List(t.Context(), configs, client.InNamespace(is.name))))

		return len(usages.Items)+len(configs.Items) == 0, fmt.Sprintf("%d and %d are there", len(usages.Items), len(configs.Items))
	})
}

// untilHeld waits until all of the namespace is being deleted, and nothing has gone
// that is in use.
func (is *tenancy) untilHeld(t *testing.T) {
	t.Helper()

	eventually(t, "all of the namespace is being deleted", func() (bool, string) {
		usages, configs, buckets := &sample.ProviderConfigUsageList{}, &sample.ProviderConfigList{}, &sample.BucketList{}
		must(t, "List()", errors.Join(
			is.server.List(t.Context(), usages, client.InNamespace(is.name)),
			is.server.List(t.Context(), configs, client.InNamespace(is.name)),
			is.server.List(t.Context(), buckets, client.InNamespace(is.name))))

		alive := 0

		for _, l := range []client.ObjectList{usages, configs, buckets} {
			must(t, "EachListItem()", kmeta.EachListItem(l, func(o runtime.Object) error {
				if co, ok := o.(client.Object); ok && !meta.WasDeleted(co) {
					alive++
				}

				return nil
			}))
		}

		return alive == 0, fmt.Sprintf("%d are not", alive)
	})
}

// settle waits until the namespace is gone, or the provider was refused again and
// again.
func (is *tenancy) settle(t *testing.T) {
	t.Helper()

	refused := call{Method: http.MethodPost, Resource: "providerconfigusages"}
	before := is.traffic.counted()[refused]

	eventually(t, "the namespace is gone, or nothing more happens", func() (bool, string) {
		l, says := is.left(t)
		n := is.traffic.counted()[refused] - before

		return l.Namespace == gone || l.Bucket != gone && n >= tries, fmt.Sprintf("%+v, %d refusals, Synced: %s", l, n, says)
	})
}

// left returns what is left, and what Synced says of the Bucket.
func (is *tenancy) left(t *testing.T) (l left, says string) {
	t.Helper()

	l = left{Namespace: gone, Bucket: gone, External: len(is.world.Inventory())}

	ns := &corev1.Namespace{}
	switch err := is.server.Get(t.Context(), client.ObjectKey{Name: is.name}, ns); {
	case err == nil:
		l.Namespace = string(ns.Status.Phase)
	case !kerrors.IsNotFound(err):
		t.Fatalf("Get(): %v", err)
	}

	b := &sample.Bucket{}
	switch err := is.server.Get(t.Context(), client.ObjectKeyFromObject(is.bucket), b); {
	case err == nil:
		c := b.GetCondition(xpv2.TypeSynced)
		l.Bucket, says = condition(b, xpv2.TypeSynced), c.Message
	case !kerrors.IsNotFound(err):
		t.Fatalf("Get(): %v", err)
	}

	return l, says
}
