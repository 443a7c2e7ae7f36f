// Package precreate observes an external resource once more right before it is created.
//
// Use it if others can create external resources of the same name between Observe and Create: another control plane, a
// person, or an earlier create of the same managed resource that returned an error.
//
//	managed.NewReconciler(mgr, kind, managed.WithExternalConnector(c), precreate.Refuse())
//
// It costs one call of Observe for each create. Refuse writes the annotation AnnotationKeyRefused. Keep the option while
// managed resources have that annotation: without it they are managed as upstream manages them.
//
// It shortens the time in which another create can come first to one call. Package reservation excludes it for managed
// resources of one control plane.
package precreate
