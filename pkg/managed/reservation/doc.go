// Package reservation lets one managed resource at a time act on an external resource.
//
// Use it if two managed resources can have one external name: each would update what the other has created, and the
// deletion of one would delete the external resource of both.
//
//	managed.NewReconciler(mgr, kind, managed.WithExternalConnector(c), reservation.With("provider-system"))
//
// It keeps a Lease for each external name, and reads it from the API server before each Create, Update and Delete: see
// With for the requests. It writes Leases, and the ExternalNameReserved condition of a managed resource that waits.
//
// It knows the managed resources of one control plane. precreate finds external resources of others.
package reservation
