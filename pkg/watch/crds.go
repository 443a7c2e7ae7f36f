package watch

import (
	"context"

	"github.com/pkg/errors"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GarbageCollectCustomResourceInformers watches CRDs until the context ends: when one
// is created, changed or deleted, its kind is looked up at once. It returns when the CRDs
// that exist are known. The scheme must know CRDs.
func (e *ControllerEngine) GarbageCollectCustomResourceInformers(ctx context.Context) error {
	crd := &extv1.CustomResourceDefinition{}
	id, err := e.set.id(crd)
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

	reg, err := e.set.subscribe(id, crd, e.set.crdChanged) //nolint:contextcheck // As above.
	if err != nil {
		return errors.Wrap(err, "cannot get informer for CustomResourceDefinitions")
	}
	e.set.crds.Store(reg.kind)
	if _, err := reg.kind.wait(ctx, nil); err != nil {
		reg.remove()
		return errors.Wrap(err, "cannot get informer for CustomResourceDefinitions")
	}
	context.AfterFunc(ctx, reg.remove)
	return nil
}

// crdChanged makes a kind look itself up when its CRD changes. It believes CRDs nothing
// else: a CRD may drop out of sight, and the API server may be late to serve what one
// says.
func (s *kindSet) crdChanged(_ context.Context, d delivery) {
	crd, ok := d.object.(*extv1.CustomResourceDefinition)
	if !ok || d.op == updated && d.old.GetResourceVersion() == crd.ResourceVersion {
		return // A resync.
	}
	changed := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
	for _, k := range s.all() {
		if k.id.GroupKind() == changed {
			k.raise(false, d.op == deleted)
		}
	}
}
