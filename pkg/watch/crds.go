package watch

import (
	"context"
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/errors"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GarbageCollectCustomResourceInformers lets CRDs drive the life of informers,
// until the context ends: when a CRD goes, or stops to serve a version, the
// watches of the kind go dormant and nothing asks for it any more; when it comes
// back, also with another scope or plural, they resume at once. It returns when
// the CRDs that exist are known. The scheme must know CRDs.
//
// Without it, kinds are found to have gone when the API server says so, and to
// have come back by asking for each, at least once a minute.
func (e *ControllerEngine) GarbageCollectCustomResourceInformers(ctx context.Context) error {
	crd := &extv1.CustomResourceDefinition{}
	gvk, err := gvkFor(crd, e.mgr.GetScheme())
	if err != nil {
		return errors.Wrap(err, "cannot get informer for CustomResourceDefinitions")
	}

	w := &crdWatcher{set: e.set}
	sub := newSubscription(w, &e.set.handlers, &e.set.delivered)
	k, err := e.set.acquire(kindID{GroupVersionKind: gvk, as: typed}, crd, sub)
	if err != nil {
		return errors.Wrap(err, "cannot get informer for CustomResourceDefinitions")
	}
	e.set.watchCRDs(1)
	k.fan.attach(sub)
	stop := func() {
		sub.stop()
		k.fan.detach(sub)
		e.set.release(k, sub)
		e.set.watchCRDs(-1)
	}

	if _, err := k.wait(ctx); err != nil {
		stop()
		return errors.Wrap(err, "cannot get informer for CustomResourceDefinitions")
	}
	context.AfterFunc(ctx, stop)
	return nil
}

// A crdWatcher tells kinds what becomes of their CRDs.
type crdWatcher struct {
	set *kindSet
}

func (w *crdWatcher) deliver(d delivery) {
	crd, ok := d.object.(*extv1.CustomResourceDefinition)
	if !ok {
		return
	}
	gk := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
	if old, ok := d.old.(*extv1.CustomResourceDefinition); ok && old.Spec.Names.Kind != gk.Kind {
		w.tell(old, schema.GroupKind{Group: old.Spec.Group, Kind: old.Spec.Names.Kind}, true)
	}
	w.tell(crd, gk, d.op == deleted)
}

func (w *crdWatcher) tell(crd *extv1.CustomResourceDefinition, gk schema.GroupKind, gone bool) {
	s := sighting{uid: crd.GetUID(), resource: crd.Spec.Names.Plural, scope: meta.RESTScopeNameRoot}
	if crd.Spec.Scope == extv1.NamespaceScoped {
		s.scope = meta.RESTScopeNameNamespace
	}
	switch {
	case gone:
		w.set.undefined(gk, s.uid)
	case established(crd):
		w.set.defined(gk, definition{sighting: s, served: served(crd)})
	}
	for _, k := range w.set.of(gk) {
		switch {
		case gone:
			// Another CRD may define the kind by now, under another plural.
			k.vanished(s)
		case !established(crd):
			// It will be, or has a conflict with one that is.
		case slices.Contains(served(crd), k.id.Version):
			k.sighted(s)
		default:
			k.vanished(s)
		}
	}
}

func established(crd *extv1.CustomResourceDefinition) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == extv1.Established {
			return c.Status == extv1.ConditionTrue
		}
	}
	return false
}

// served returns the versions that a CRD serves.
func served(crd *extv1.CustomResourceDefinition) []string {
	var out []string
	for _, v := range crd.Spec.Versions {
		if v.Served {
			out = append(out, v.Name)
		}
	}
	return out
}
