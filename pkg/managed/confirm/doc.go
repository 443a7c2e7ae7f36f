// Package confirm removes the finalizer only after an external resource was not found several times.
//
// Use it if the external system sometimes answers "not found" for a resource that exists.
//
//	managed.NewReconciler(mgr, kind, managed.WithExternalConnector(c), confirm.With(3, 10*time.Second))
//
// It costs calls of Observe and the time between them for each deletion that this process did not make. It writes the
// reason ConfirmingAbsence of the Deleting condition.
//
// The count is in memory: a restart only delays a deletion.
package confirm
