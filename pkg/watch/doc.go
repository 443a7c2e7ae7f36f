// Package watch runs controllers whose watches come and go, on kinds that come
// and go. It has the API of Crossplane's internal/engine at v2.4.0, and can be
// used in its place, or alone by a controller that watches kinds that may not
// exist.
//
// # The life of a watch
//
//	             StartWatches
//	                  │
//	                  ▼         kind is looked up          informer syncs
//	 ┌─────────── Pending ─────────────────────► Syncing ─────────────────► Active
//	 │                ▲                             │                        │  ▲
//	 │   CRD is back, │      no such kind           │       CRD is gone      │  │
//	 │   or time to   ├─────────── Dormant ◄────────┼────────────────────────┤  │
//	 │   try again    │                             │                        │  │ answers
//	 │                │      forbidden, ...         │       unreachable,     ▼  │ again
//	 │                └─────────── Degraded ◄───────┴──── forbidden, ... ── Degraded
//	 ▼
//	Stopped: from any state, by StopWatches, Stop or Shutdown
//
// A watch is Active only while its handler gets the events of the running and
// synced informer of the kind's current generation. Whatever happens to the
// informer, the watch stays, and resumes without the caller doing anything. Then
// the handler is told of all objects that are there, and of the deletion of those
// that went meanwhile, once. A watch that is Dormant has no informer, sends no
// requests but a rare look whether the kind is back, and writes no log lines.
//
// # How it works
//
// Two layers know nothing of each other's life:
//
//   - The cache has a kind for each group, version, kind and representation
//     (typed, unstructured, metadata) that somebody wants. Watches, handlers,
//     indexes and recent reads own a kind. Each kind has one goroutine that looks
//     up the mapping, opens and closes informers, and retries with a backoff of
//     its own. When the last owner is gone, and a while has passed, the kind goes
//     with its informer and store.
//   - The engine has controllers, and their watches. To start a watch is to own a
//     kind and to be attached to its events; to stop one is to let go. Neither
//     sends a request.
//
// Under each kind there is a whole controller-runtime cache with one informer in
// it. controller-runtime looks kinds up while it holds the lock that all reads
// of a cache need; so one cache for all kinds can't keep them apart, whatever is
// built around it. One cache each can, and all its options keep their meaning.
// The mapping is looked up before, without a lock and bounded in time, always
// afresh: so a kind that comes back with another scope or plural works. Ending a
// kind's cache ends exactly its informer. How lists and watches turn out is seen
// by wrapping what NewInformer gets, and the watch error handler: neither alone
// sees all.
//
// Events don't go from the informer to handlers directly. A kind listens to its
// informer once, knows which objects it has handed out, and hands each event to
// all watches. This is what lets handlers outlive informers. A watch has a
// goroutine only while it has events, so that one that is idle costs none, and
// stopping one can wait for exactly its handler.
//
// An incarnation of a controller lasts from Start to Stop. The context of its
// reconciles and handlers knows it: a call that is made late, by a reconcile of
// an incarnation that was stopped, isn't taken for one of the controller that now
// has the name. An incarnation doesn't run before the one before it has ended.
//
// No lock is held across a request or a wait. Every call is bounded by its
// context.
//
// # Other caches
//
// TrackInformers wraps any other cache. Calls don't block each other here then
// either, and watches follow informers as they come and go. But what such a cache
// does inside stays as it is: its discovery blocks its reads, and a kind that
// comes back elsewhere is asked for where it was. Use NewCache.
package watch
