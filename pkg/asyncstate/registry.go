package asyncstate

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// A registry holds one operation for each object: an operation that runs, or whose result is not
// stored or not in the cache. It is safe for concurrent use.
type registry struct{ operations sync.Map }

// get the operation of an object, or nil.
func (r *registry) get(uid types.UID) *operation {
	v, _ := r.operations.Load(uid)
	op, _ := v.(*operation)
	return op
}

// add an operation unless the object has one. It reports whether it did.
func (r *registry) add(op *operation) bool {
	_, exists := r.operations.LoadOrStore(op.uid(), op)
	return !exists
}

// remove an operation. Another one of the same object stays.
func (r *registry) remove(op *operation) { r.operations.CompareAndDelete(op.uid(), op) }
