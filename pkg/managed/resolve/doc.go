// Package resolve determines the outcome of a create that was interrupted or got no answer.
//
// Use it if the external system can be asked for the resource of a create, by a tag with the managed resource's UID for
// example. Without it, upstream stops after a provider was killed in a create, and waits for a person.
//
//	managed.NewReconciler(mgr, kind, managed.WithExternalConnector(c), resolve.With(resolve.FindWithConnector(c)))
//
// It costs nothing while creates succeed. A create without an outcome costs one call of Find in each reconcile and one
// write. It writes the CreateResolved condition, and upstream's annotations about the create.
//
// Creates of asynchronous operations have a record: package asyncstate resolves those.
package resolve
