// Package reconciler adds to a reconciler of any kind what Graft adds to one of
// managed resources, where it makes sense for both; and has what both say about a
// deletion.
//
// It ends the silence of a deletion: a reconciler that says Deleting in memory,
// and returns before it writes that, leaves Ready=True on an object that is going
// away, for as long as that takes. Crossplane's reconciler of claims does so on
// its first pass.
//
//	work queue ─► Reconciler ────────────────► inner Reconcile (unmodified)
//	                │ 1 Ready=False/Deleting       │
//	                │   deadline, force orphan     ▼
//	                │                           client ─► API server
//	                │                              2 serves own writes to stale reads,
//	                │                                keeps status, drops writes of
//	                │                                nothing, adds the report to
//	                │                                writes of status
//	                │ 3 the report, if inner wrote no status
//	                ▼
//	             result: inner's, but no later than the deadline,
//	             or the next look at dependents
//
// The inner reconciler is built with the client that New hands out, and is
// otherwise left alone. Its objects may be of a Go type or unstructured, with
// conditions where Crossplane has them: in status.conditions. An object that has
// none, or something else there, is left alone.
//
// # The report
//
// An object that is being deleted has two conditions: Ready, False for the reason
// Deleting, and Deleting, True for the reason that keeps the object. Both carry
// the same message. Messages hold no times but those at which something happened,
// so that the same situation is written once.
//
// WithDependents says what has to go first. The message then counts what is gone,
// and names a few of those that are not, first those that need somebody to act,
// each with what it says itself: its own Deleting condition, its pause, its
// finalizers, the error of its Synced condition. So a cause travels up from a
// managed resource to its composite resource, and to the claim of that. What
// can't be read is said to be unknown, and why; it never fails the reconcile.
//
// Dependents are read from the client, each once a report. Nothing is read of
// them but their metadata and conditions.
//
// # The deadline, and the way out
//
// WithDeletionDeadline says that a deletion takes too long, once: in the
// condition, an event, a metric, and to a function. It does nothing about it.
//
// WithForceOrphan lets an operator do something about it: if they set
// AnnotationKeyForceOrphan to the object's own UID, the finalizers that the option
// lists are removed, in an update that the API server refuses if the finalizers or
// the annotation have changed. Release does the same, and more, for programs.
//
// # Finalizers
//
// GuardFinalizer keeps finalizers from objects that are paused or being deleted.
// Release pauses an object, deletes it, and then removes finalizers, in that
// order.
//
// The examples are shaped like Crossplane's reconcilers of claims and of composite
// resources.
package reconciler
