// Package managed is a drop-in for crossplane-runtime's pkg/reconciler/managed: it
// exports the same names, and wraps the calls of the same unmodified reconciler.
// Change the import to use it, change it back to remove it.
//
// It fixes three failures:
//
//   - An external name that was learned after Create returned, or by a call that
//     then failed, is never stored. The resource is created a second time when the
//     provider restarts.
//   - A managed resource that is being deleted reports Ready=True while something
//     blocks the deletion, and no condition says why.
//   - Every poll of every managed resource writes its status, even if nothing
//     changed. The status that Observe set is lost when metadata or spec is written
//     after it.
//
// Graft wraps upstream's Reconcile on three sides:
//
//	work queue ─► Reconciler ─────────────► upstream's Reconcile
//	                │                         │              │
//	                │ reports Deleting first  ▼              ▼
//	                └────────────────────► client         connector, external
//	                                         │            client, finalizer
//	                          keeps status,  │              │ stores annotations
//	                          drops empty    ▼              ▼ after each call
//	                          writes        API server     external system
//
// On by default, with the option that turns each off, if there is one:
//
//   - Deletion is reported before the external client is connected to, and with
//     a reason in every phase (WithoutDeletionStatus). pkg/reconciler defines the
//     reasons.
//   - Annotations that the external client set, the external name above all, are
//     stored as soon as the call returns (WithoutExternalNamePersistence).
//   - No finalizer is added to a managed resource that is paused or being deleted
//     (WithoutFinalizerGuard).
//   - Status that did not change is not written (WithUnchangedStatusWrites).
//   - A field of spec, labels or annotations that another writer changes back each time is set
//     once a minute, and the ConflictingWrites condition names that writer.
//
// Off by default:
//
//   - WithExternalNameReservation lets one managed resource at a time act on an
//     external resource.
//   - WithPreCreateObserve observes once more right before Create. WithPreCreateAdoption
//     adopts the external resource that it finds.
//   - WithCreateResolver determines the result of an interrupted create, where
//     upstream stops.
//   - WithDeletionConfirmation removes the finalizer only after several "not found".
//   - WithRateLimits limits calls of the external system by account.
//   - WithDeletionDeadline reports a deletion that takes too long, and WithForceOrphan lets
//     an operator end it.
//   - WithAsync lets operations outlive the reconcile and the process.
//   - NewProviderConfigUsageTracker lets a managed resource be deleted while its
//     namespace is being deleted, and WithUsageProtection keeps the provider config
//     until then.
//
// Each feature is a layer around the provider's calls, in its own file. The order of the
// layers is in reconciler.go.
//
// Everything else is upstream's, and is documented there. The example of
// NewReconciler is a whole provider.
package managed
