// Package embedded is an API server in memory, and a manager to build reconcilers with. It
// is stricter than controller-runtime's fake client, and several times as fast, because an
// object is stored as its Go type and its JSON form.
//
// What it does as a kube-apiserver does it for custom resources:
//
//   - UID, creationTimestamp, generation and resourceVersion are the server's. An
//     object that is created again has another UID and a resourceVersion that was
//     never used. The generation grows with the spec and with a deletion.
//   - A write that changes nothing leaves the resourceVersion alone.
//   - An Update, of status too, is refused with 409 Conflict if it carries another
//     UID. A patch that would change the UID is refused with 422 Invalid, but a
//     patch of status isn't: there everything but status is dropped, the UID too.
//     Preconditions of a Delete are checked. A patch that carries another
//     resourceVersion is refused with 409 Conflict.
//   - No write adds a finalizer to an object that is being deleted: 422 Invalid.
//     A second Delete doesn't move the deletionTimestamp. Where Options.CollectorFinalizers
//     is set, the propagation policy of each gives the object the finalizer of the
//     garbage collector, in place of another.
//   - Create drops status, and fills in the defaults of the CRD's schema.
//   - After a write the caller's object is what the server stored, with times of
//     whole seconds.
//
// Requests are counted by verb, subresource and kind.
//
// Limits. There is no cache: a read sees the last write. Nothing is validated but
// metadata, unknown fields aren't pruned, a dry run does nothing at all. There is
// no admission and no authorization, namespaces needn't exist, nothing is garbage
// collected. Lists have no resourceVersion and no field selectors. There is no server-side
// apply, no watch and no subresource but status, and collections can't be deleted. One
// request is served at a time.
package embedded
