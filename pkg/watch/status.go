package watch

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
)

// A State is the state of a watch, or of a kind.
type State string

// States of a watch. A kind has the same states. Dormant and Degraded end without a call.
// Objects that were listed stay readable while the informer runs.
const (
	StatePending  State = "Pending"  // Waits for the cache, the controller, or a look-up.
	StateSyncing  State = "Syncing"  // The first list, or its delivery, or the first watch is missing.
	StateActive   State = "Active"   // The handler gets the events of a running, synced informer.
	StateDormant  State = "Dormant"  // The API server doesn't serve the kind. No informer runs.
	StateDegraded State = "Degraded" // The kind can't be listed and watched, or its handler hangs.
	StateStopped  State = "Stopped"  // The watch was stopped, or the cache has ended.
)

// states in the order of a watch's life.
func states() []State {
	return []State{StatePending, StateSyncing, StateActive, StateDormant, StateDegraded, StateStopped}
}

// A status is the status of a kind. It is immutable.
type status struct {
	state      State
	since      time.Time
	err        *KindError        // The last failure, until an informer works.
	generation uint64            // How many informers there were.
	mapping    *meta.RESTMapping // How the kind was served last. Nil if it never was found.
	informer   *informer         // Serves reads. Nil while no informer is synced.
	replaced   chan struct{}     // Closed when there is a newer status.
}
