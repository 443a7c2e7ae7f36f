// Package contested bounds the writes of a field that another writer changes back each time.
//
// Use it if external clients late-initialize fields that a composition or a GitOps tool sets, too: each would undo the
// other in each reconcile, without end.
//
//	managed.NewReconciler(mgr, kind, managed.WithExternalConnector(c), contested.With())
//
// It costs the memory of the last writes, and no request. It writes the ConflictingWrites condition, which names the
// field and the other field manager.
package contested
