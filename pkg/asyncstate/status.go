package asyncstate

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Status is what a Tracker knows of a running operation.
type Status struct {
	Attempt

	// Deadline of the operation.
	Deadline time.Time

	// Percent and Message are what was last given to Progress.
	Percent int
	Message string
}

// Lookup returns the operation of an object that runs in this process. It makes no
// request, and takes no lock that is held for long.
func (t *Tracker) Lookup(uid types.UID) (Status, bool) {
	op := t.operation(uid)
	if op == nil {
		return Status{}, false
	}
	return op.status()
}
