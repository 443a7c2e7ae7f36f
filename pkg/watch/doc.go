// Package watch runs controllers whose watches come and go, on kinds that come
// and go. It has the API of Crossplane's internal/engine at v2.4.0, and can be
// used in its place, or alone by a controller that watches kinds that may not
// exist. docs/watch.md says how, and which states a watch has.
//
// # How it works
//
//   - The cache has a kind for each group, version, kind and representation
//     (typed, unstructured, metadata) that is used. Watches, handlers, indexes,
//     calls that wait and recent reads own a kind. When the last owner is gone, and
//     a while has passed, the kind goes with its informer and store.
//   - The engine has controllers, and their watches. To start a watch is to own a
//     kind and to be attached to its events; to stop one is to release it. Neither
//     sends a request.
//
// Each kind has one goroutine and one counter, its epoch. Whatever may make its
// informer wrong raises the epoch: an event of its CRD, a list that is repeated,
// RemoveInformer. The goroutine notes the epoch, looks the kind up, opens an
// informer, and starts over when the epoch was raised and the kind is served in
// another way, or not at all. The outcomes of lists and watches belong to the
// informer that made them. Objects are delivered as deleted only if the API server
// says so: by a list, or by not serving their kind.
//
// Under each kind there is a whole controller-runtime cache with one informer in
// it. controller-runtime looks kinds up while it holds the lock that all reads
// of a cache need, so one cache for all kinds can't keep them apart. One cache
// each can, and all its options keep their meaning.
//
// Events go from the informer to the kind's fan, which knows the objects that it has
// delivered, and from there to all watches. So handlers outlive informers. A watch
// has a goroutine only while it has events.
//
// An incarnation of a controller lasts from Start to Stop. The context of its
// reconciles and handlers knows it: a late call by a reconcile of an incarnation that
// was stopped doesn't affect the controller that now has the name. An incarnation
// doesn't run before the one before it has ended.
//
// No lock is held across a request or a wait. Every call is bounded by its
// context.
package watch
