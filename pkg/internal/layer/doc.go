// Package layer defines the calls of a provider, the layers that decorate them, and the order of those layers. The core
// of package managed and its options share it.
//
// A layer learns what others did from the results of the calls that it passes on, and from the managed resource. It
// knows no other layer. State of one reconcile is in a seam.Slot, state that outlives it in Parts.Store.
package layer
