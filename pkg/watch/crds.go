package watch

import (
	"context"
	"strings"

	"github.com/pkg/errors"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GarbageCollectCustomResourceInformers watches CRDs until the context ends: when one
// is created, changed or deleted, its kind is looked up at once. So the watches of a
// kind go dormant when the API server doesn't serve it any more, and resume when it
// does again, also with another scope or plural. It returns when the CRDs that exist
// are known. The scheme must know CRDs.
//
// Without it, the next request for a kind that no longer exists tells that, and
// dormant kinds are looked up at least once a minute.
func (e *ControllerEngine) GarbageCollectCustomResourceInformers(ctx context.Context) error {
	crd := &extv1.CustomResourceDefinition{}
	gvk, err := gvkFor(crd, e.mgr.GetScheme())
	if err != nil {
		return errors.Wrap(err, "cannot get informer for CustomResourceDefinitions")
	}
	if w, ok := e.set.backend.(*wrapped); ok {
		// Without, a kind of another cache can't be looked up.
		r, err := newDiscoveryResolver(e.mgr.GetConfig(), e.mgr.GetHTTPClient())
		if err != nil {
			return err
		}
		w.resolver.Store(r)
	}

	k, err := e.set.acquire(kindID{GroupVersionKind: gvk, as: typed}, crd)
	if err != nil {
		return errors.Wrap(err, "cannot get informer for CustomResourceDefinitions")
	}
	sub := newSubscription(e.set.crdChanged, &e.set.handlers)
	e.set.crds.Store(k)
	e.set.crdWatches.Add(1)
	k.fan.attach(sub) //nolint:contextcheck // As above.
	stop := func() {
		sub.stop()
		k.release(sub)
		e.set.crdWatches.Add(-1)
	}

	if _, err := k.wait(ctx, nil); err != nil {
		stop()
		return errors.Wrap(err, "cannot get informer for CustomResourceDefinitions")
	}
	context.AfterFunc(ctx, stop)
	return nil
}

// crdChanged makes a kind look itself up when its CRD changes. It believes CRDs nothing
// else: a CRD may drop out of sight, and the API server may be late to serve what one
// says.
func (s *kindSet) crdChanged(_ context.Context, d delivery) {
	crd, ok := d.object.(*extv1.CustomResourceDefinition)
	if !ok {
		return
	}
	if old, ok := d.old.(*extv1.CustomResourceDefinition); ok && servedAs(old) == servedAs(crd) {
		return
	}
	s.raise(schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}, d.op == deleted)
}

// servedAs returns what a CRD says about how its kind is served, in a form to compare.
func servedAs(crd *extv1.CustomResourceDefinition) string {
	out := []string{crd.Spec.Names.Kind, crd.Spec.Names.Plural, string(crd.Spec.Scope)}
	for _, v := range crd.Spec.Versions {
		if v.Served {
			out = append(out, v.Name)
		}
	}
	for _, c := range crd.Status.Conditions {
		if c.Type == extv1.Established {
			out = append(out, string(c.Status))
		}
	}
	return strings.Join(out, " ")
}
