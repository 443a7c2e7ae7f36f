package asyncstate

import "time"

// An observed is what is known after an observation.
type observed struct {
	Exists, UpToDate     bool // the external resource
	Deleting             bool // the managed resource
	MayCreate, MayUpdate bool // by the management policies

	// Recorded reports whether the last operation has a record: it failed, or its process died.
	Recorded bool

	// Backoff is how long the next operation has to wait after one that failed, Invisible how long the next update has
	// to wait after one that succeeded, and that Observe does not show.
	Backoff, Invisible time.Duration
}

// creates and updates report whether upstream begins an operation. It updates an external resource that does not exist
// if the management policies allow that, and no create.
func (o observed) creates() bool { return !o.Exists && o.MayCreate }
func (o observed) updates() bool { return !o.creates() && !o.UpToDate && o.MayUpdate }

// A decision is what follows an observation.
type decision int

const (
	// pass the observation on: upstream begins nothing, or the deletion, which Delete decides about.
	pass decision = iota

	// settle the record of an operation that is done, or no longer needed or allowed, and pass.
	settle

	// backOff until the next attempt.
	backOff

	// rest until the next update, as upstream does after one that succeeded.
	rest

	// begin an operation as soon as there is a permit.
	begin
)

// decide returns what follows an observation.
func decide(o observed) decision {
	switch begins := o.creates() || o.updates(); {
	case o.Deleting:
		return pass
	case !begins && o.Exists && o.Recorded:
		return settle
	case !begins:
		return pass
	case o.Backoff > 0:
		return backOff
	case o.updates() && o.Invisible > 0:
		return rest
	default:
		return begin
	}
}
