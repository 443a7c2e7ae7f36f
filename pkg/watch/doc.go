// Package watch runs controllers whose watches come and go, on kinds that come
// and go. It has the API of Crossplane's internal/engine at v2.4.0, and can be
// used in its place, or alone by a controller that watches kinds that may not
// exist. docs/watch.md says how, and which states a watch has.
//
// # How it works
//
//   - The cache has a kind for each group, version, kind and representation
//     (typed, unstructured, metadata) that is used. Watches, handlers, indexes,
//     waiting calls and recent reads own a kind. After the last owner is released, the
//     kind is removed with its informer and store, once the linger period is over.
//   - The engine has controllers, and their watches. Starting a watch owns a kind and
//     attaches the handler to its events; stopping it releases the kind. Neither sends
//     a request.
//
// Each kind has one goroutine and one counter, its epoch. Events that may make the informer wrong increment it: an
// event of its CRD, a repeated list, RemoveInformer. The goroutine runs a session for each informer: it waits for
// the epoch, for results of the informer's requests, and for a timer. If the epoch has moved, it looks the kind up, and
// replaces the informer if the kind is served in another way. A look-up of a kind whose informer runs has a
// goroutine of its own, so that the state isn't older than a few seconds. Objects are delivered as deleted only if
// a list doesn't have them, or if discovery doesn't serve their kind and a list of it doesn't work.
//
// There are two clocks. A kind in trouble has one backoff, which events of its CRD end; calls for it fail at
// once with the last error and, if the error may end by itself, make it retry, at most once a second.
// A kind that works is looked up now and then, in case no event says that it has changed.
//
// Under each kind there is a controller-runtime cache with its informer, or with one for each
// namespace that the cache is restricted to. controller-runtime
// sends discovery requests while it holds the lock that all reads of a cache need, so one cache
// for all kinds can't isolate them. All options of a cache keep their meaning. informer.go has all
// that adapts to controller-runtime's versions.
//
// Events go from the informer to the kind's broadcaster, and from there to all watches. The broadcaster
// has the objects that it has delivered. When another informer has synced, it delivers the deletion of
// those that are missing, and then all objects. So handlers outlive informers. A watch has a
// goroutine only while it has events.
//
// The context of reconciles and handlers has their controller, so a late call by a reconcile of a
// stopped controller doesn't affect the one that has the name now. A controller doesn't run before the
// earlier one of its name has ended. It gets one source, which hands its queue to all watches.
//
// No lock is held across a request or a wait. Every call is bounded by its context.
package watch
