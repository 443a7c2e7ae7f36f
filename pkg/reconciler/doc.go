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
//	                │                              │
//	                │ Ready=False/Deleting         ▼
//	                └─────────────────────────► client ─► API server
//	                                 serves own writes to stale reads,
//	                                 keeps status, drops writes of nothing
//
// The inner reconciler is built with the client that New hands out, and is
// otherwise left alone. Its objects may be of a Go type or unstructured, with
// conditions where Crossplane has them: in status.conditions.
//
// An object that is being deleted has two conditions: Ready, False for the reason
// Deleting, and Deleting, True for the reason that keeps the object. Both carry
// the same message. Messages hold no times and no errors, so that the same
// situation is written once; errors are in the Synced condition.
//
// The example of New is shaped like Crossplane's reconciler of claims.
package reconciler
