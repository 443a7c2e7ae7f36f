// Package managed is a drop-in for crossplane-runtime's pkg/reconciler/managed: it
// has the same names, and runs the same unmodified reconciler, whose calls it wraps.
// Change the import to get it, change it back to remove it.
//
// It ends three failures:
//
//   - An external name that was learned after Create returned, or by a call that
//     then failed, is never stored, and the resource is created a second time
//     when the provider restarts.
//   - A managed resource that is being deleted says Ready=True for as long as
//     something blocks, and nothing says why.
//   - Every poll of every managed resource writes its status, although nothing
//     changed; and the status that Observe set is lost whenever metadata or spec
//     is written after it.
//
// A reconcile goes through three seams. Those around upstream's are Graft's:
//
//	work queue ─► Reconciler ─────────────► upstream's Reconcile
//	                │                         │              │
//	                │ says Deleting first     ▼              ▼
//	                └────────────────────► client         connector, external
//	                                         │            client, finalizer
//	                          keeps status,  │              │ stores annotations
//	                          drops empty    ▼              ▼ after each call
//	                          writes        API server     external system
//
// What is on by default, and the option that turns it off:
//
//   - Deletion is reported before the external client is connected to, and with
//     a reason in every phase (WithoutDeletionStatus). The reasons are those of
//     pkg/reconciler.
//   - Annotations that the external client set, the external name above all, are
//     stored as soon as the call returns (WithoutExternalNamePersistence).
//   - No finalizer is added to what is paused or being deleted
//     (WithoutFinalizerGuard).
//   - Status that did not change is not written (WithUnchangedStatusWrites).
//
// What is off by default:
//
//   - WithExternalNameReservation lets one managed resource at a time act on an
//     external resource.
//   - WithPreCreateObserve looks once more before it creates.
//   - WithCreateResolver finds out the result of a create that was interrupted,
//     where upstream stops.
//   - WithDeletionConfirmation doesn't believe a single "not found".
//   - WithAsync makes operations outlive the reconcile and the process.
//   - NewProviderConfigUsageTracker lets a managed resource be deleted whose
//     namespace is being deleted, and WithUsageProtection keeps the provider config
//     until then.
//
// A feature is a layer around the provider's calls, in a file of its own; layer.go has
// their order.
//
// Everything else is upstream's, and documented there. The example of
// NewReconciler is a whole provider.
package managed
