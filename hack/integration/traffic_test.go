//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/hack/internal/apicalls"
)

type call = apicalls.Call

type fault int

const (
	noFault fault = 0
	// The API server never sees the request, and the answer is a failure, or
	// doesn't come.
	refuseConflict  fault = http.StatusConflict
	refuseInternal  fault = http.StatusInternalServerError
	refuseForbidden fault = http.StatusForbidden
	loseRequest     fault = 1
	// The request succeeds, and its answer is lost.
	loseAnswer fault = 2
)

// A traffic counts the requests of one process, and makes some of them fail.
type traffic struct {
	apicalls.Counter

	// fault decides what happens to a request. It must be safe for concurrent
	// use. No request fails if it is nil.
	fault func(c call, body []byte) fault
}

func (t *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return t.Wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
		return t.send(next, r, apicalls.Classify(r))
	}))
}

func (t *traffic) send(next http.RoundTripper, r *http.Request, c call) (*http.Response, error) {
	if t.fault == nil {
		return next.RoundTrip(r)
	}
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	refused := map[fault]metav1.StatusReason{
		refuseConflict: metav1.StatusReasonConflict,
		refuseInternal: metav1.StatusReasonInternalError, refuseForbidden: metav1.StatusReasonForbidden,
	}
	switch f := t.fault(c, body); f {
	case refuseConflict, refuseInternal, refuseForbidden:
		body, err := json.Marshal(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Code: int32(f), Reason: refused[f], Message: "injected: refused",
		})
		return &http.Response{
			StatusCode:    int(f),
			Header:        http.Header{"Content-Type": {"application/json"}},
			Body:          io.NopCloser(bytes.NewReader(body)),
			ContentLength: -1,
			Request:       r,
		}, err
	case loseRequest:
		return nil, fmt.Errorf("injected: no answer: %w", os.ErrDeadlineExceeded)
	case noFault:
		return next.RoundTrip(r)
	case loseAnswer:
	}
	response, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return nil, fmt.Errorf("injected: the answer got lost: %w", os.ErrDeadlineExceeded)
}

type roundTripper = apicalls.RoundTripperFn

// dice decide what fails. They are safe for concurrent use. The same seed gives
// the same throws, though not to the same requests.
type dice struct {
	mu      sync.Mutex
	rand    *rand.Rand
	faults  []fault
	percent int
	thrown  int
}

func newDice(percent int, faults ...fault) *dice {
	d := &dice{rand: rand.New(rand.NewPCG(1, 0))}
	d.set(percent, faults...)
	return d
}

func (d *dice) set(percent int, faults ...fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.percent, d.faults = percent, faults
}

func (d *dice) throw() fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.faults) == 0 || d.rand.IntN(100) >= d.percent {
		return noFault
	}
	d.thrown++
	return d.faults[d.rand.IntN(len(d.faults))]
}

func (d *dice) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.thrown
}
