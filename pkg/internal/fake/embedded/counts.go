package embedded

import (
	"maps"
	"sync"
)

// A Verb is what a request does, in the words of the Kubernetes API.
type Verb string

// The verbs that are counted.
const (
	VerbGet              Verb = "get"
	VerbList             Verb = "list"
	VerbWatch            Verb = "watch"
	VerbCreate           Verb = "create"
	VerbUpdate           Verb = "update"
	VerbPatch            Verb = "patch"
	VerbApply            Verb = "apply"
	VerbDelete           Verb = "delete"
	VerbDeleteCollection Verb = "deletecollection"
)

// A Request is a class of requests.
type Request struct {
	// Verb of the request.
	Verb Verb

	// Subresource that it is for, for instance "status". Empty for the object
	// itself.
	Subresource string

	// Kind of the object.
	Kind string
}

// Counts tells how many requests of each class were made, refused ones included.
type Counts map[Request]int

// Writes returns how many requests were neither get, list nor watch.
func (c Counts) Writes() int {
	return c.sum(func(r Request) bool {
		return r.Verb != VerbGet && r.Verb != VerbList && r.Verb != VerbWatch
	})
}

// StatusWrites returns how many writes were for the status subresource.
func (c Counts) StatusWrites() int {
	return c.sum(func(r Request) bool { return r.Subresource == "status" && r.Verb != VerbGet })
}

// Of returns how many requests had that verb and subresource, for all kinds.
func (c Counts) Of(v Verb, subresource string) int {
	return c.sum(func(r Request) bool { return r.Verb == v && r.Subresource == subresource })
}

func (c Counts) sum(match func(Request) bool) int {
	n := 0

	for r, count := range c {
		if match(r) {
			n += count
		}
	}

	return n
}

type counter struct {
	mu     sync.Mutex
	counts Counts
}

func (c *counter) add(r Request) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.counts == nil {
		c.counts = Counts{}
	}

	c.counts[r]++
}

func (c *counter) get() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()

	return maps.Clone(c.counts)
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.counts = nil
}
