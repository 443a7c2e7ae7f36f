// Package seam holds what every Graft reconciler shares: the two seams at
// which it changes what an unmodified upstream reconciler does.
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
// What is changed is said by a list of Patches. Patches don't know each other;
// the Session carries what they share.
//
// The one rule that keeps all of this safe: a Session holds the newest state of
// the object that it knows the API server to have (Base), and only while the
// object in memory has Base's resourceVersion may anything be concluded from
// comparing the two.
package seam
