// Package managed is a drop-in for crossplane-runtime's pkg/reconciler/managed: it
// exports the same names, and wraps the calls of the same unmodified reconciler.
// Change the import to use it, change it back to remove it.
//
// Its own names are [Upstream], [NoAnswer], [Refused], and the options that restore
// upstream's behaviour: [WithoutDeletionStatus], [WithoutExternalNamePersistence],
// [WithoutFinalizerGuard] and [WithUnchangedStatusWrites]. Its other options are packages below
// it. All other names are upstream's, and documented there.
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
//     a reason in every phase ([WithoutDeletionStatus]). pkg/reconciler defines the
//     reasons.
//   - Annotations that the external client set, the external name above all, are
//     stored as soon as the call returns ([WithoutExternalNamePersistence]).
//   - No finalizer is added to a managed resource that is paused or being deleted
//     ([WithoutFinalizerGuard]).
//   - Status that did not change is not written ([WithUnchangedStatusWrites]).
//
// Options are packages of their own:
//
//   - Use [ratelimit] if the external system limits calls.
//   - Use [resolve] if the external system can be searched for the resource of an interrupted create.
//   - Use [reservation] if two managed resources can have one external name.
//   - Use [precreate] if others create external resources of the same name.
//   - Use [confirm] if the external system hides external resources at times.
//   - Use [escape] to report deletions that take too long, and to end them.
//   - Use [usage] if managed resources are deleted with their namespace or provider config.
//   - Use [contested] if another writer changes the same fields.
//   - Use [asyncstate] if operations outlive a reconcile.
//
// Each of them is a layer around the provider's calls. The order is that of the stages in
// internal/layer.
//
// The example of [NewReconciler] is a whole provider.
//
// [ratelimit]: https://pkg.go.dev/github.com/crossplane-graft/graft/pkg/managed/ratelimit
// [resolve]: https://pkg.go.dev/github.com/crossplane-graft/graft/pkg/managed/resolve
// [reservation]: https://pkg.go.dev/github.com/crossplane-graft/graft/pkg/managed/reservation
// [precreate]: https://pkg.go.dev/github.com/crossplane-graft/graft/pkg/managed/precreate
// [confirm]: https://pkg.go.dev/github.com/crossplane-graft/graft/pkg/managed/confirm
// [escape]: https://pkg.go.dev/github.com/crossplane-graft/graft/pkg/managed/escape
// [usage]: https://pkg.go.dev/github.com/crossplane-graft/graft/pkg/managed/usage
// [contested]: https://pkg.go.dev/github.com/crossplane-graft/graft/pkg/managed/contested
// [asyncstate]: https://pkg.go.dev/github.com/crossplane-graft/graft/pkg/asyncstate
package managed
