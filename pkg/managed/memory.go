package managed

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// memory is what a layer knows of objects between reconciles. It is lost when the
// process ends, and an object that is created again under the same name starts with the
// zero value. The zero memory is ready to use, and safe for concurrent use.
type memory[T any] struct {
	mu sync.Mutex
	of map[client.ObjectKey]remembered[T]
}

type remembered[T any] struct {
	uid   types.UID
	value T
}

// get returns what is known of an object.
func (m *memory[T]) get(o client.Object) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of[client.ObjectKeyFromObject(o)]
	if r.uid != o.GetUID() {
		return remembered[T]{}.value
	}
	return r.value
}

// update changes what is known of an object, and returns it.
func (m *memory[T]) update(o client.Object, fn func(v *T)) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := client.ObjectKeyFromObject(o)
	r := m.of[k]
	if r.uid != o.GetUID() {
		r = remembered[T]{uid: o.GetUID()}
	}
	fn(&r.value)
	if m.of == nil {
		m.of = map[client.ObjectKey]remembered[T]{}
	}
	m.of[k] = r
	return r.value
}

// forget an object.
func (m *memory[T]) forget(k client.ObjectKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, k)
}

// len returns the number of objects.
func (m *memory[T]) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.of)
}
