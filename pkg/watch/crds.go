package watch

import (
	"context"

	"github.com/pkg/errors"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GarbageCollectCustomResourceInformers watches CRDs until the context ends: when one
// is created, changed or deleted, its kind is looked up at once. It returns when the CRDs
// are listed. The scheme must know CRDs.
func (e *ControllerEngine) GarbageCollectCustomResourceInformers(ctx context.Context) error {
	crd := &extv1.CustomResourceDefinition{}
	var sub *subscription
	var k *kind
	key, err := e.kinds.keyOf(crd)
	if err == nil {
		sub, k, err = e.kinds.subscribe(key, crd, e.kinds.crdChanged) //nolint:contextcheck // It outlives the call.
	}
	if err == nil {
		watched := func() bool { return sub.ctx.Err() == nil && k.status.Load().state == StateActive }
		e.kinds.crds.Store(&watched)
		if _, err = k.wait(ctx); err != nil {
			sub.remove()
		}
	}
	if err != nil {
		return errors.Wrap(err, "cannot get informer for CustomResourceDefinitions")
	}
	context.AfterFunc(ctx, sub.remove)
	return nil
}

// crdChanged makes a kind look itself up when its CRD changes. It takes nothing else from the
// event: a CRD may disappear from a restricted cache, and the API server may serve a changed
// CRD late.
func (m *kindMap) crdChanged(_ context.Context, d delivery) {
	crd, ok := d.object.(*extv1.CustomResourceDefinition)
	if !ok || d.op == updated && d.old.GetResourceVersion() == crd.ResourceVersion {
		return // A resync.
	}
	changed := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
	for _, k := range m.all() {
		if k.key.GroupKind() == changed {
			k.crdChanged(d.op)
		}
	}
}
