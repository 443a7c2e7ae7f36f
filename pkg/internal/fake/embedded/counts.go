package embedded

import (
	"context"
	"maps"
	"strings"
	"sync"
)

// A Verb is what a request does, in the words of the Kubernetes API.
type Verb string

// The verbs that are counted.
const (
	VerbGet    Verb = "get"
	VerbList   Verb = "list"
	VerbCreate Verb = "create"
	VerbUpdate Verb = "update"
	VerbPatch  Verb = "patch"
	VerbDelete Verb = "delete"
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

// Writes returns how many requests were neither get nor list.
func (c Counts) Writes() int {
	n := 0
	for r, count := range c {
		if (Call{Verb: r.Verb}).Writes() {
			n += count
		}
	}
	return n
}

// count a request, and have it served.
func (s *Server) count(_ context.Context, c Call, serve func() error) error {
	// Without a kind the request is going to fail.
	gvk, _ := s.objects.GroupVersionKindFor(c.Object)
	s.counter.add(Request{Verb: c.Verb, Subresource: c.Subresource, Kind: strings.TrimSuffix(gvk.Kind, "List")})
	return serve()
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
