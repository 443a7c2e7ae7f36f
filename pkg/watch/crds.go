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
	if old, ok := d.old.(*extv1.CustomResourceDefinition); ok && old.Spec.Names.Kind != crd.Spec.Names.Kind {
		w.tell(old, true, nil)
	}
	next, _ := d.successor.(*extv1.CustomResourceDefinition)
	w.tell(crd, d.op == deleted, next)
}

// tell of a CRD, and of one that has taken its name if it is gone.
func (w *crdWatcher) tell(crd *extv1.CustomResourceDefinition, gone bool, next *extv1.CustomResourceDefinition) {
	gk := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
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
		case gone && next != nil && serves(next, k.id.GroupVersionKind):
			// It is back already. What its informer knows may be of the new kind,
			// so none of that is gone until the next informer says so.
		case gone:
			// Another CRD may define the kind by now, under another plural.
			k.vanished(s)
		case !established(crd):
			// It will be, or has a conflict with one that is.
		case serves(crd, k.id.GroupVersionKind):
			k.sighted(s)
		default:
			k.vanished(s)
		}
	}
}

// serves tells whether a CRD makes the API server serve the kind.
func serves(crd *extv1.CustomResourceDefinition, gvk schema.GroupVersionKind) bool {
	return established(crd) && crd.Spec.Names.Kind == gvk.Kind && slices.Contains(served(crd), gvk.Version)
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
