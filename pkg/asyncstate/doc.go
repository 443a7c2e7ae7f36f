// Package asyncstate lets external operations outlive the reconcile that begins them,
// and the process.
//
// It ends two failures of asynchronous providers. An external name that is learned
// after Create has returned is lost, since upstream stores it only as a late
// initialization. And an operation that is in progress when the process dies is
// forgotten: the resource is created a second time, and the first one is leaked.
//
// A Create calls [SetExternalName] as soon as it knows the name. The name is stored when that call returns, while
// the create is still running and under any management policies.
//
//	reconcile                          operation (a goroutine)
//	─────────                          ───────────────────────
//	Observe   nothing there
//	          record ─► API server
//	Create    begins ────────────────► Create of the external client
//	Observe   "exists, up to date"       SetExternalName, SetHandle ─► API server
//	          │                          Progress
//	          │                          returns
//	          │                        result ─► API server: name stored and
//	Observe ◄─┴───────── requeues ────── record removed, in one patch
//
// The record is an annotation of the managed resource. It is written before the first request to the
// external system, and is all that a crash leaves of the operation.
//
//	recorded ──► running ──► ended ──► stored
//	                └─ a minute after its deadline: abandoned, its outcome is unknown
//
// A handle is the text by which the external system knows an operation that it has accepted, such as the ID that it
// answers with HTTP 202. After a crash the next step depends on the external client:
//
//	it implements [Resumer], and has set a handle  the operation is resumed
//	it implements [Finder]                           its external resource is looked up
//	WithIdempotentTokens                           the create is repeated with its token
//	WithDeterministicNames                         it is observed by its name, and repeated
//	none of these                                  Graft stops, and the condition has the next step for a person
//
// An update or delete that was interrupted is begun again if the next Observe asks for
// it. A create is never made a second time on a guess, nor when the management policies
// no longer allow it.
//
// A provider needs a tracker for each of its controllers, and one option:
//
//	tracker := asyncstate.NewTracker()
//	r := managed.NewReconciler(mgr, kind, managed.WithExternalConnector(c), asyncstate.With(tracker))
//	err := ctrl.NewControllerManagedBy(mgr).For(&v1.Bucket{}).WatchesRawSource(tracker.Source()).Complete(r)
//
// The connector needs no change: its clients do everything while they are called.
//
// # Costs
//
// An object that has no operation costs no memory and no request. An operation costs,
// beside upstream's writes, one write for its record and one for its result;
// a create costs as much as a synchronous one.
package asyncstate
