// Package reconciler wraps the reconciler of any kind, and makes the deletion of its
// objects visible.
//
// A reconciler that sets Deleting in memory, and returns before it writes status,
// leaves Ready=True on an object that is being deleted. Crossplane's reconciler of
// claims does so on its first pass.
//
//	work queue ─► Reconciler ────────────────► inner Reconcile (unmodified)
//	                │ 1 Ready=False/Deleting       │
//	                │   deadline, force orphan     ▼
//	                │                           client ─► API server
//	                │                              2 serves own writes to stale reads,
//	                │                                keeps status, drops unchanged
//	                │                                writes, adds the report to
//	                │                                writes of status
//	                │ 3 the report, if inner wrote no status
//	                ▼
//	             result: inner's, but no later than the deadline,
//	             or the next look at dependents
//
// The inner reconciler is built with the client that New passes to it, and is
// otherwise not changed.
//
// # Types
//
// Objects may be of a Go type or unstructured. Their conditions are in
// status.conditions. A Go type qualifies if it is a resource.Conditioned, as
// Crossplane's types are, or if status.conditions is a []metav1.Condition or a list of
// a type with the same fields in JSON. New panics if a Go type has other conditions.
// An unstructured object qualifies if it has conditions of that shape already, or if
// the scheme has a Go type of its kind that qualifies.
//
// Any other object gets no report and no deadline. Force orphan works for it.
//
// # The report
//
// An object that is being deleted has two conditions: Ready, False for the reason
// Deleting, and Deleting, True for the reason that keeps the object. Both carry
// the same message. Messages hold no times but those at which something happened,
// so that the same situation is written once.
//
// WithDependents says which objects must be deleted first. The message then counts
// those that are deleted, and names a few of the others, first those that a person must
// act on. It quotes their own Deleting condition, their pause, their finalizers, or
// the error of their Synced condition. So a cause travels up from a managed resource to
// its composite resource, and to the claim of that. If a dependent can't be read, the
// message says that it is unknown, and why. That never fails the reconcile.
//
// Each dependent is read once a reconcile at most, and only its metadata and conditions are
// used. A look at them has a deadline. What is not read by then is not counted: the
// message names the kind, or says that they were not read in time.
//
// Users write references, and may not be allowed to read the objects. So a
// dependent is quoted only if the object controls it, or if it is the composite
// resource that is bound to the claim. No reference starts a watch: see
// WithWatchedKinds.
//
// # The deadline, and force orphan
//
// WithDeletionDeadline reports once that a deletion takes too long: in the
// condition, an event, a metric, and to a function. It changes nothing else.
//
// WithForceOrphan lets an operator end such a deletion: if they set
// AnnotationKeyForceOrphan to the object's own UID, the finalizers that the option
// lists are removed, in an update that the API server refuses if the object has
// changed. The garbage collector removes the owner references to the object first, so
// that the objects it owns are kept. Release does the same, and more, for programs.
//
// # Finalizers
//
// GuardFinalizer adds no finalizer to an object that is paused or being deleted.
// Release pauses an object, deletes it, and then removes finalizers, in that
// order.
//
// The examples are shaped like Crossplane's reconcilers of claims and of composite
// resources.
package reconciler
