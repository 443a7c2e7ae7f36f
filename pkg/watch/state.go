package watch

// A State says how far a watch, or the kind that it watches, has come.
type State string

// States of a watch. A kind has the same states, for all its watches together.
const (
	// StatePending means that something must happen first: the cache or the
	// controller must start, or the kind must be looked up.
	StatePending State = "Pending"

	// StateSyncing means that the informer runs and hasn't delivered its first
	// list.
	StateSyncing State = "Syncing"

	// StateActive means that the handler gets the events of the running,
	// synced informer of the current generation.
	StateActive State = "Active"

	// StateDormant means that the API server doesn't serve the kind. Nothing
	// runs for it. The watch resumes by itself when the kind comes back.
	StateDormant State = "Dormant"

	// StateDegraded means that the kind should be there and that something is
	// wrong: we may not list it, or the API server can't be reached. It is
	// tried again by itself. What was delivered before stays readable.
	StateDegraded State = "Degraded"

	// StateStopped means that nobody wants the watch any more.
	StateStopped State = "Stopped"
)

// States lists all states, in the order of a watch's life.
func States() []State {
	return []State{StatePending, StateSyncing, StateActive, StateDormant, StateDegraded, StateStopped}
}
