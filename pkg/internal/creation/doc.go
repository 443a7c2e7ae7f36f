// Package creation determines the state of the create of an external resource (announced,
// running, succeeded, failed, or with an unknown outcome), and the next step for it.
//
// Upstream keeps three annotations about a create (external-create-pending, -succeeded and
// -failed). They have a resolution of one second, and clocks of different machines differ. An
// asynchronous operation has a record besides. No other package works out a create from these
// (seam stores them, crashtest judges them from outside):
//
//	Of(object)          State   read from the annotations, the external name and the record
//	Next(Question)      Step    settles a create with an unknown outcome
//	On(object)…         the changes of annotations that store the next state
//
// A State is read from one object, which may be stale. A decision that is made from it is
// stored with a write that the API server refuses if the object has changed since.
//
// # Absence has a time
//
// An answer that there is no external resource proves nothing before the create has
// certainly ended, and the external system has had time to show the external resource. The
// creation grace period, which upstream has for a create that succeeded, is that time for
// every create whose outcome is unknown. A create that has failed and has stored no external
// name needs no wait: nothing was created.
package creation
