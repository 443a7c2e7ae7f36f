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
// A Session has the newest state of the object that the API server is known to have had
// (Base). While the object in memory has another version, nothing is created, updated or
// deleted for it, and no write of it is dropped as unchanged. docs/design.md has all rules.
package seam
