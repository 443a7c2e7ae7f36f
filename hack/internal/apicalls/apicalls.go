// Package apicalls counts the requests of one process to the API server.
package apicalls

import (
	"maps"
	"net/http"
	"strings"
	"sync"
)

// A Call is a class of requests to the API server.
type Call struct {
	Method, Resource, Name, Subresource string

	Watch   bool // Stays open.
	Refused bool // Answered with a failure, or not at all.
}

// Reads reports whether such a request changes nothing.
func (c Call) Reads() bool { return c.Method == http.MethodGet }

// Verb returns what such a request does, in the words of the Kubernetes API, with
// the subresource if there is one: "update status".
func (c Call) Verb() string {
	verb := map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
		http.MethodDelete: "delete",
	}[c.Method]
	switch {
	case c.Watch:
		verb = "watch"
	case c.Reads() && c.Name == "":
		verb = "list"
	}
	return strings.TrimSpace(verb + " " + c.Subresource)
}

// Counts of requests whose answers have come.
type Counts map[Call]int

// Sum returns how many requests match.
func (c Counts) Sum(match func(Call) bool) int {
	n := 0
	for k, count := range c {
		if match(k) {
			n += count
		}
	}
	return n
}

// Writes returns how many requests change something, or could.
func (c Counts) Writes() int { return c.Sum(func(k Call) bool { return !k.Reads() }) }

// A Counter counts requests. It is safe for concurrent use.
type Counter struct {
	mu     sync.Mutex
	counts Counts
}

// Counted returns the requests so far.
func (t *Counter) Counted() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}

// Since returns the requests that were made since.
func (t *Counter) Since(before Counts) Counts {
	made := t.Counted()
	for k, n := range before {
		made[k] -= n
	}
	maps.DeleteFunc(made, func(_ Call, n int) bool { return n == 0 })
	return made
}

// Wrap the transport of a rest.Config.
func (t *Counter) Wrap(next http.RoundTripper) http.RoundTripper {
	return RoundTripperFn(func(r *http.Request) (*http.Response, error) {
		c := Classify(r)
		response, err := next.RoundTrip(r)
		c.Refused = err != nil || response.StatusCode >= http.StatusMultipleChoices
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.counts == nil {
			t.counts = Counts{}
		}
		t.counts[c]++
		return response, err
	})
}

// A RoundTripperFn is a function that is a transport.
type RoundTripperFn func(r *http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (fn RoundTripperFn) RoundTrip(r *http.Request) (*http.Response, error) { return fn(r) }

// Classify a request by its path: /apis/group/version, or /api/version, and
// [/namespaces/namespace]/resource[/name[/subresource]].
func Classify(r *http.Request) Call {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(path) > 3 && path[0] == "apis":
		path = path[3:]
	case len(path) > 2 && path[0] == "api":
		path = path[2:]
	}
	if len(path) > 2 && path[0] == "namespaces" {
		path = path[2:]
	}
	path = append(path, "", "")
	return Call{
		Method: r.Method, Resource: path[0], Name: path[1], Subresource: path[2],
		Watch: r.URL.Query().Get("watch") == "true",
	}
}
