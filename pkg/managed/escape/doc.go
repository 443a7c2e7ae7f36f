// Package escape reports deletions that take too long, and lets an operator end one without its external resource.
//
// Use WithDeadline to be told, and WithForceOrphan if operators may leave external resources behind.
//
//	managed.NewReconciler(mgr, kind, managed.WithExternalConnector(c),
//		escape.WithDeadline(time.Hour, nil), escape.WithForceOrphan())
//
// It costs one reconcile at the deadline. It writes the Deleting condition and an event, and removes finalizers on
// request only, which names the object's UID.
//
// A deadline never deletes or orphans anything.
package escape
