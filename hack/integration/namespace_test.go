//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/providerconfig"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed/usage"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	token = "valid" // The credential of the provider configs.
	gone  = "gone"  // How left spells what isn't there.
)

var protecting = flavour{name: "Protecting", build: func(
	m ctrl.Manager, of resource.ManagedKind, s setup,
) reconcile.Reconciler {
	return newGraft(m, of, s, usage.WithProtection(usageKind()))
}}

func usageKind() schema.GroupVersionKind {
	return v1alpha1.ProviderConfigKinds(v1alpha1.ProviderConfigKind).Usage
}

type left struct {
	Namespace string // Its phase.
	Bucket    string // What Synced says of it.
	External  int    // External resources.
	InUse     int    // Usages and provider configs of the namespace.
}

// A namespace is deleted with all that is in it. The API server creates nothing in
// it any more, and the namespace controller deletes in no particular order. The usage
// of the provider config is therefore deleted while the Bucket waits for its external
// resource, and can't be created again. With upstream that blocks the deletion of the
// Bucket.
func TestTerminatingNamespace(t *testing.T) {
	nothing := left{Namespace: gone, Bucket: gone}
	stuck := left{Namespace: string(corev1.NamespaceTerminating), Bucket: "False/ReconcileError", External: 1}
	ofCluster := xpv2.ProviderConfigReference{Kind: v1alpha1.ClusterProviderConfigKind, Name: "default"}
	ofNamespace := xpv2.ProviderConfigReference{Kind: v1alpha1.ProviderConfigKind, Name: "own"}
	cases := map[string]struct {
		reason  string
		flavour flavour
		refers  xpv2.ProviderConfigReference

		foreground bool // Deletes the Bucket and its provider config, not the namespace.

		want  left                                         // Once the external resource is deleted.
		says  []string                                     // The message of Synced then.
		frees func(t *testing.T, is *tenancy, stop func()) // A stuck Bucket.
	}{
		"Upstream": {
			reason:  "The Bucket can't connect any more, and nothing is deleted until the provider is replaced by one with Graft's tracker.",
			flavour: upstream, refers: ofCluster,
			want: stuck, says: []string{
				"connect failed", "providerconfigusages", "is forbidden", "because it is being terminated",
			},
			frees: func(t *testing.T, is *tenancy, stop func()) {
				stop()
				is.start(t, graft)
			},
		},
		"ClusterProviderConfig": {
			reason:  "With Graft's tracker everything is deleted.",
			flavour: graft, refers: ofCluster,
			want: nothing,
		},
		"ProviderConfig": {
			reason: "A provider config in the namespace goes when nothing says any more that it is used. " +
				"It can't come back; but the Bucket can be given another one.",
			flavour: graft, refers: ofNamespace,
			want: stuck, says: []string{"connect failed", "cannot get the provider config", "not found"},
			frees: func(t *testing.T, is *tenancy, _ func()) {
				is.server.merge(
					t,
					fmt.Sprintf(
						`{"spec":{"providerConfigRef":{"kind":%q,"name":"default"}}}`,
						v1alpha1.ClusterProviderConfigKind,
					),
					is.bucket,
				)
			},
		},
		"ProtectedUsage": {
			reason:  "If usages are protected it goes last.",
			flavour: protecting, refers: ofNamespace,
			want: nothing,
		},
		"Foreground": {
			reason:  "A foreground deletion waits for the Bucket, not for its protected usage; and the provider config for both.",
			flavour: protecting, refers: ofNamespace, foreground: true,
			want: left{Namespace: string(corev1.NamespaceActive), Bucket: gone},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			is := newTenancy(t, tc.refers)
			stop := is.start(t, tc.flavour)
			is.server.until(t, "the Bucket is available", []sample.Instance{is.bucket}, isAvailable)
			eventually(t, "the provider config is in use", func() (bool, string) {
				pc := read(t, is.server, is.config)
				return pc.GetUsers() == 1 &&
						len(pc.GetFinalizers()) == 1, fmt.Sprintf(
						"%d users, finalizers %v", pc.GetUsers(), pc.GetFinalizers(),
					)
			})
			is.world.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
				if c.Op == cloud.OpDelete {
					return errors.New("the bucket is not empty")
				}
				return nil
			}})
			if tc.foreground {
				must(t, "Delete()", errors.Join(
					is.server.Delete(t.Context(), is.config),
					is.server.Delete(
						t.Context(), is.bucket, client.PropagationPolicy(metav1.DeletePropagationForeground),
					)))
			} else {
				must(t, "Delete()", is.server.Delete(t.Context(), is.namespace))
			}
			if tc.flavour.name == protecting.name {
				eventually(
					t, "the Bucket waits for its external resource, and the provider config for the Bucket",
					func() (bool, string) {
						b, pc := read(t, is.server, is.bucket),
							read(t, is.server, is.config) // It may not go while it is needed.
						says := condition(b, reconciler.TypeDeleting)
						return says == "True/"+string(reconciler.ReasonExternalDeleteFailed) &&
							meta.WasDeleted(pc), fmt.Sprintf("Deleting: %s, provider config: %+v", says, pc)
					},
				)
			} else {
				eventually(t, "usages and provider configs of the namespace are gone", func() (bool, string) {
					l, _ := is.left(t)
					return l.InUse == 0, fmt.Sprintf("%+v", l)
				})
			}
			is.world.SetHooks(cloud.Hooks{})
			refused := func(c call) bool { return c.Method == http.MethodPost && c.Resource == "providerconfigusages" }
			before := is.traffic.Counted().Sum(refused)
			comesTo := func(want left, texts ...string) {
				t.Helper()
				eventually(t, tc.reason, func() (bool, string) {
					got, says := is.left(t)

					// After ten refusals nothing else is to come.
					n := is.traffic.Counted().Sum(refused) - before
					ok := got == want && (got.Bucket == gone || n >= 10) &&
						!slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(says, text) })
					return ok, fmt.Sprintf("want %+v, got %+v, %d refusals, Synced: %s", want, got, n, says)
				})
			}
			comesTo(tc.want, tc.says...)
			if tc.frees != nil {
				tc.frees(t, is, stop)
				comesTo(nothing)
			}
		})
	}
}

// A tenancy is a namespace with a Bucket in it, of a provider that logs in with
// the token of the provider config that the Bucket refers to.
type tenancy struct {
	server    server
	world     *cloud.Cloud
	namespace *corev1.Namespace
	config    resource.ProviderConfig // That the Bucket refers to.
	bucket    *v1alpha1.Bucket
	traffic   *traffic
}

func newTenancy(t *testing.T, refers xpv2.ProviderConfigReference) *tenancy {
	t.Helper()
	s := newServer(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
	must(t, "Create()", s.Create(t.Context(), ns))
	own, shared := &v1alpha1.ProviderConfig{}, &v1alpha1.ClusterProviderConfig{}
	own.Namespace, own.Name, own.Spec.Token = ns.Name, "own", token
	shared.Name, shared.Spec.Token = "default", token
	s.createFor(t, own, shared)
	is := &tenancy{
		server:    s,
		world:     cloud.New(cloud.Options{Token: token}),
		namespace: ns,
		config:    shared,
		bucket:    v1alpha1.NewBucket(ns.Name, "one"),
		traffic:   &traffic{},
	}
	if refers.Kind == v1alpha1.ProviderConfigKind {
		is.config = own
	}
	is.bucket.SetProviderConfigReference(&refers)
	s.create(t, is.bucket)
	return is
}

func (is *tenancy) start(t *testing.T, f flavour) (stop func()) {
	t.Helper()
	track := usage.NewProviderConfigUsageTracker
	if f.name == upstream.name {
		track = resource.NewProviderConfigUsageTracker
	}
	build := func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
		for kind, o := range map[string]client.Object{
			v1alpha1.ProviderConfigKind:        &v1alpha1.ProviderConfig{},
			v1alpha1.ClusterProviderConfigKind: &v1alpha1.ClusterProviderConfig{},
		} {
			must(t, "cannot add a controller", ctrl.NewControllerManagedBy(m).
				For(o).
				Watches(&v1alpha1.ProviderConfigUsage{}, &resource.EnqueueRequestForProviderConfig{Kind: kind}).
				Complete(providerconfig.NewReconciler(m, v1alpha1.ProviderConfigKinds(kind))))
		}
		if f.name == protecting.name {
			must(t, "cannot add a controller", ctrl.NewControllerManagedBy(m).
				For(&v1alpha1.ProviderConfigUsage{}).
				Complete(usage.NewReleaser(m, usageKind())))
		}
		configs := sample.WithProviderConfigs(m.GetClient(), track(m.GetClient(), &v1alpha1.ProviderConfigUsage{}))
		s.connectors.typed = sample.NewSync[*v1alpha1.Bucket](is.world, configs)
		return f.build(m, of, s)
	}
	return start(
		t,
		flavour{build: build},
		setup{wrap: is.traffic.wrap, kinds: []resource.ManagedKind{v1alpha1.BucketManagedKind()}},
	)
}

func (is *tenancy) left(t *testing.T) (l left, says string) {
	t.Helper()
	usages, configs := &v1alpha1.ProviderConfigUsageList{}, &v1alpha1.ProviderConfigList{}
	must(t, "List()", errors.Join(
		is.server.List(t.Context(), usages, client.InNamespace(is.namespace.Name)),
		is.server.List(t.Context(), configs, client.InNamespace(is.namespace.Name))))
	l = left{
		Namespace: gone,
		Bucket:    gone,
		External:  len(is.world.Inventory()),
		InUse:     len(usages.Items) + len(configs.Items),
	}
	ns := &corev1.Namespace{}
	err := is.server.Get(t.Context(), client.ObjectKeyFromObject(is.namespace), ns)
	must(t, "Get()", client.IgnoreNotFound(err))
	if err == nil {
		l.Namespace = string(ns.Status.Phase)
	}
	b := &v1alpha1.Bucket{}
	err = is.server.Get(t.Context(), client.ObjectKeyFromObject(is.bucket), b)
	must(t, "Get()", client.IgnoreNotFound(err))
	if !kerrors.IsNotFound(err) {
		l.Bucket, says = condition(b, xpv2.TypeSynced), b.GetCondition(xpv2.TypeSynced).Message
	}
	return l, says
}
