//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A call is a class of requests to the API server.
type call struct {
	Method, Resource, Subresource string
}

// counts tells how many requests of each class were made, refused ones included.
type counts map[call]int

// writes returns how many requests change something, or could.
func (c counts) writes() int { return c.sum(func(k call) bool { return k.Method != http.MethodGet }) }

func (c counts) statusPuts() int {
	return c.sum(func(k call) bool { return k.Method == http.MethodPut && k.Subresource == "status" })
}

func (c counts) sum(match func(call) bool) int {
	n := 0

	for k, count := range c {
		if match(k) {
			n += count
		}
	}

	return n
}

// A fault is what happens to a request on its way.
type fault int

const (
	noFault fault = iota
	// The API server never sees the request, and the answer is a 409 or a 500.
	refuseConflict
	refuseInternal
	// The API server does what it was asked, and the answer gets lost.
	loseAnswer
)

// A traffic counts the requests of one provider, and makes some of them fail.
type traffic struct {
	// fault decides what happens to a request. It must be safe for concurrent
	// use. No request fails if it is nil.
	fault func(c call, body []byte) fault

	// watches hold back events, if it isn't nil.
	watches *floodgate

	mu     sync.Mutex
	counts counts
}

// counted returns the requests so far.
func (t *traffic) counted() counts {
	t.mu.Lock()
	defer t.mu.Unlock()

	return maps.Clone(t.counts)
}

// wrap the transport of a rest.Config.
func (t *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		c := classify(r)

		t.mu.Lock()
		if t.counts == nil {
			t.counts = counts{}
		}

		t.counts[c]++
		t.mu.Unlock()

		if t.watches != nil && r.URL.Query().Get("watch") == "true" {
			response, err := next.RoundTrip(r)
			if err != nil {
				return nil, err
			}

			return t.watches.through(r, response), nil
		}

		if t.fault == nil || r.Body == nil {
			return next.RoundTrip(r)
		}

		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()

		if err != nil {
			return nil, err
		}

		f := t.fault(c, body)

		switch f {
		case refuseConflict:
			return answer(r, http.StatusConflict, metav1.StatusReasonConflict)
		case refuseInternal:
			return answer(r, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		case noFault, loseAnswer:
		}

		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))

		response, err := next.RoundTrip(r)
		if err != nil || f == noFault {
			return response, err
		}

		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()

		return nil, fmt.Errorf("injected: the answer got lost: %w", os.ErrDeadlineExceeded)
	})
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (fn roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return fn(r) }

func answer(r *http.Request, code int32, reason metav1.StatusReason) (*http.Response, error) {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Code:     code,
		Reason:   reason,
		Message:  "injected: refused",
	})
	if err != nil {
		return nil, err
	}

	return &http.Response{
		StatusCode: int(code),
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       r,
	}, nil
}

// classify a request by its path: /apis/group/version[/namespaces/namespace]/resource[/name[/subresource]]
func classify(r *http.Request) call {
	c := call{Method: r.Method}

	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(path) > 3 && path[0] == "apis" {
		path = path[3:]
	}

	if len(path) > 2 && path[0] == "namespaces" {
		path = path[2:]
	}

	c.Resource = path[0]
	if len(path) > 2 {
		c.Subresource = path[2]
	}

	return c
}
