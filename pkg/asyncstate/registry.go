package asyncstate

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// A registry holds one operation for each object: those that run, and those whose result is
// not stored, or not in the cache. It is safe for concurrent use.
type registry[O comparable] struct{ operations sync.Map }

// get the operation of an object, or the zero value.
func (r *registry[O]) get(uid types.UID) O {
	v, _ := r.operations.Load(uid)
	op, _ := v.(O)
	return op
}

// add an operation unless the object has one. It reports whether it did.
func (r *registry[O]) add(uid types.UID, op O) bool {
	_, exists := r.operations.LoadOrStore(uid, op)
	return !exists
}

// remove the operation of an object if it is op.
func (r *registry[O]) remove(uid types.UID, op O) { r.operations.CompareAndDelete(uid, op) }
