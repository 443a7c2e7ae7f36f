// Package seam has the two seams at which every Graft reconciler changes the behaviour of
// an unmodified upstream reconciler.
//
//	work queue ─► Reconciler ──────────────► inner Reconcile (unmodified)
//	                 │ opens a Session              │
//	                 │                              ▼
//	                 └─────────────────────────► Client ──► API server
//
// The reconcile seam (Reconciler) opens one Session for each reconcile and
// closes it when the inner reconciler has returned. The client seam (Client) is
// the client the inner reconciler is built with. It finds the Session in the
// context, and without one it does nothing.
//
// A list of Patches changes the behaviour. Patches don't know each other; they share the
// Session.
//
// One rule keeps this safe: a Session has the newest state of the object that the API
// server is known to have had (Base). It compares the object in memory with Base only if
// both have the same resource version.
package seam
