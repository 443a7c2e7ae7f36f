package crashtest

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Cloud is a fake of the external system. It is often an [http.Handler] too, for
// [Process.Transport]. [Resources] is one to embed.
//
// A Cloud must not sleep and must use no random numbers. It has a lock if the provider
// calls it from several goroutines.
type Cloud interface {
	// Made returns the external name of each resource that was ever created, in order. A
	// name that was created twice is listed twice.
	Made() []string

	// Exists returns the resources that exist, by external name. The value describes what
	// a managed resource's spec decides, for instance "size=5". It is the same in
	// each run.
	Exists() map[string]string
}

// A Lagging [Cloud] can hide new resources. Without it no run has the fault late.
type Lagging interface {
	// Lag hides each resource that is created from now on: reads don't see it until d has
	// passed since its creation. It still exists. 0 ends that for resources to come.
	Lag(d time.Duration)
}

// A Detailed [Cloud] knows connection details. Without it, a connection secret has to have the keys that it has in the
// run without a fault.
type Detailed interface {
	// ConnectionDetails returns the data that the connection secret of an external resource has to have.
	ConnectionDetails(name string) map[string]string
}

var (
	_ Cloud   = &Resources[string]{}
	_ Lagging = &Resources[string]{}
)

// Resources are the content of a fake external system, by external name. The zero value is
// ready to use. Methods are safe for concurrent use.
type Resources[T any] struct {
	mu    sync.Mutex
	named int
	made  []string
	all   []*resourceOf[T]
	lag   time.Duration
}

type resourceOf[T any] struct {
	name  string
	value T
	shown time.Time
}

// NewName returns a name that was never returned before: the prefix and a number.
func (r *Resources[T]) NewName(prefix string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.named++
	return fmt.Sprintf("%s-%d", prefix, r.named)
}

// Create a resource. It returns false if the name is taken.
func (r *Resources[T]) Create(name string, value T) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.find(name) != nil {
		return false
	}
	r.made = append(r.made, name)
	r.all = append(r.all, &resourceOf[T]{name: name, value: value, shown: time.Now().Add(r.lag)})
	return true
}

// Get a resource. It returns false if there is none, or if it is hidden.
func (r *Resources[T]) Get(name string) (T, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.find(name); o != nil && !o.shown.After(time.Now()) {
		return o.value, true
	}
	var none T
	return none, false
}

// List the resources that are not hidden, in order of their creation.
func (r *Resources[T]) List() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []T
	for _, o := range r.all {
		if !o.shown.After(time.Now()) {
			out = append(out, o.value)
		}
	}
	return out
}

// Update a resource. It returns false if there is none.
func (r *Resources[T]) Update(name string, value T) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.find(name)
	if o != nil {
		o.value = value
	}
	return o != nil
}

// Delete a resource. It returns false if there is none.
func (r *Resources[T]) Delete(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	had := len(r.all)
	r.all = slices.DeleteFunc(r.all, func(o *resourceOf[T]) bool { return o.name == name })
	return len(r.all) < had
}

// Made implements [Cloud].
func (r *Resources[T]) Made() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.made)
}

// Exists implements [Cloud] with the values as fmt prints them.
func (r *Resources[T]) Exists() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]string, len(r.all))
	for _, o := range r.all {
		out[o.name] = fmt.Sprintf("%+v", o.value)
	}
	return out
}

// Lag implements [Lagging].
func (r *Resources[T]) Lag(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lag = d
}

// find needs the lock.
func (r *Resources[T]) find(name string) *resourceOf[T] {
	for _, o := range r.all {
		if o.name == name {
			return o
		}
	}
	return nil
}
