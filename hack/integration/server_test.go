//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/answers"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

const (
	namespace = "default"

	managedFinalizer = "finalizer.managedresource.crossplane.io"
	otherFinalizer   = "example.org/other"

	patience  = 2 * time.Minute        // Most of what is waited for takes a second or two.
	lookEvery = 100 * time.Millisecond // It leaves most of the API server to the provider.
)

// A server is the API server as a user sees it: without a cache.
type server struct{ client.Client }

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(errors.Join(
		v1alpha1.AddToScheme(s),
		corev1.AddToScheme(s),
		coordinationv1.AddToScheme(s),
		rbacv1.AddToScheme(s),
		admissionregv1.AddToScheme(s),
	))
	return s
}

// newServer returns the API server, without any managed resources. Objects that
// the test leaves are removed at its end.
func newServer(t *testing.T) server {
	t.Helper()
	config := plane.Config()
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	must(t, "client.New()", err)
	s := server{c}
	t.Cleanup(func() {
		for _, mg := range s.list(context.WithoutCancel(t.Context()), t) {
			s.erase(t, mg)
		}
	})
	return s
}

func (s server) createFor(t *testing.T, os ...client.Object) {
	t.Helper()
	for _, o := range os {
		must(t, "Create()", s.Create(t.Context(), o))
		t.Cleanup(func() { s.erase(t, o) })
	}
}

func (s server) erase(t *testing.T, o client.Object) {
	t.Helper()
	must(t, "cannot clean up", answers.Erase(t, s, o))
}

func (s server) list(ctx context.Context, t *testing.T) map[types.UID]sample.Instance {
	t.Helper()
	out := map[types.UID]sample.Instance{}
	for _, l := range []interface {
		client.ObjectList
		resource.ManagedList
	}{&v1alpha1.DatabaseList{}, &v1alpha1.BucketList{}} {
		must(t, "List()", s.List(ctx, l))
		for _, mg := range l.GetItems() {
			i, ok := mg.(sample.Instance)
			if !ok {
				t.Fatalf("%T is not the sample's", mg)
			}
			out[mg.GetUID()] = i
		}
	}
	return out
}

func read[O client.Object](t *testing.T, s server, o O) O {
	t.Helper()
	out, ok := o.DeepCopyObject().(O)
	if !ok {
		t.Fatalf("a copy of %T is of another type", o)
	}
	must(t, "Get()", s.Get(t.Context(), client.ObjectKeyFromObject(o), out))
	return out
}

func (s server) create(t *testing.T, fleet ...sample.Instance) {
	t.Helper()
	s.all(t, fleet, func(mg sample.Instance) error { return s.Create(t.Context(), mg) })
}

func (s server) remove(t *testing.T, fleet ...sample.Instance) {
	t.Helper()
	s.all(t, fleet, func(mg sample.Instance) error { return s.Delete(t.Context(), mg) })
}

func (s server) merge(t *testing.T, patch string, fleet ...sample.Instance) {
	t.Helper()
	s.all(t, fleet, func(mg sample.Instance) error { return s.Patch(t.Context(), mg, mergePatch(patch)) })
}

func (s server) all(t *testing.T, fleet []sample.Instance, fn func(mg sample.Instance) error) {
	t.Helper()
	inParallel(t, lanes, len(fleet), func(i int) error { return fn(fleet[i]) })
}

func (s server) until(t *testing.T, what string, fleet []sample.Instance, holds func(mg sample.Instance) bool) {
	t.Helper()
	eventually(t, what, func() (bool, string) {
		all := s.list(t.Context(), t)
		for n, mg := range fleet {
			got, ok := all[mg.GetUID()]
			if !ok {
				return false, fmt.Sprintf("%s is gone", mg.GetName())
			}
			if !holds(got) {
				return false, fmt.Sprintf(
					"%d of %d do, not %s: Ready %s, Synced %s, annotations %v",
					n,
					len(fleet),
					got.GetName(),
					condition(got, xpv2.TypeReady),
					condition(got, xpv2.TypeSynced),
					got.GetAnnotations(),
				)
			}
		}
		return true, ""
	})
}

func (s server) untilGone(t *testing.T) {
	t.Helper()
	eventually(t, "all managed resources are gone", func() (bool, string) {
		for _, mg := range s.list(t.Context(), t) {
			return false, fmt.Sprintf(
				"%s is there: finalizers %v, Ready %s, Synced %s",
				mg.GetName(),
				mg.GetFinalizers(),
				condition(mg, xpv2.TypeReady),
				condition(mg, xpv2.TypeSynced),
			)
		}
		return true, ""
	})
}

// eventually waits until a condition holds. It says how far off it is as long as
// it doesn't.
func eventually(t *testing.T, what string, holds func() (ok bool, state string)) {
	t.Helper()
	state := ""
	err := wait.PollUntilContextTimeout(
		t.Context(), lookEvery, patience, true,
		func(context.Context) (ok bool, err error) {
			ok, state = holds()
			return ok, nil
		},
	)
	if err != nil {
		t.Fatalf("waiting for: %s: %v: %s", what, err, state)
	}
}

func mergePatch(body string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(body))
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func fleet(name string, n int, change ...func(mg sample.Instance)) []sample.Instance {
	out := make([]sample.Instance, 0, 2*n)
	for i := range n {
		out = append(out,
			v1alpha1.NewDatabase(fmt.Sprintf("%s-%d", name, i)),
			v1alpha1.NewBucket(namespace, fmt.Sprintf("%s-%d", name, i)))
	}
	for _, mg := range out {
		for _, fn := range change {
			fn(mg)
		}
	}
	return out
}

// condition in the way in which kubectl's columns and a describe would show it.
func condition(mg resource.Conditioned, ct xpv2.ConditionType) string {
	c := mg.GetCondition(ct)
	if c.Status == corev1.ConditionUnknown && c.Reason == "" {
		return "-"
	}
	return string(c.Status) + "/" + string(c.Reason)
}

func isAvailable(mg sample.Instance) bool {
	return condition(mg, xpv2.TypeReady) == "True/Available" &&
		condition(mg, xpv2.TypeSynced) == "True/ReconcileSuccess"
}

func externalName(o client.Object) string { return meta.GetExternalName(o) }

func size(world *cloud.Cloud, mg sample.Instance) string {
	for _, r := range world.Inventory() {
		if r.Owner == string(mg.GetUID()) {
			return r.Properties["size"]
		}
	}
	return ""
}

// owned checks that each of n managed resources has one external resource, had no other
// one, and that there is none beside.
func (s server) owned(t *testing.T, world *cloud.Cloud, n int) {
	t.Helper()
	all, owners := s.list(t.Context(), t), map[types.UID]string{}
	for _, r := range world.Inventory() {
		owners[types.UID(r.Owner)] = r.ID
	}
	if len(all) != n || len(owners) != n || len(world.Inventory()) != n {
		t.Errorf(
			"want %d managed resources, and external resources of as many owners, got %d, and %d of %d",
			n,
			len(all),
			len(world.Inventory()),
			len(owners),
		)
	}
	for uid, mg := range all {
		if st := world.Stats(string(uid)); owners[uid] == "" || externalName(mg) != owners[uid] || st.Created != 1 {
			t.Errorf(
				"%T %s: want the external name %q, and one external resource ever, got %q and %+v",
				mg,
				mg.GetName(),
				owners[uid],
				externalName(mg),
				st,
			)
		}
	}
}
