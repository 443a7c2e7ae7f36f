//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A leaseFault is a failure of a request for a Lease.
type leaseFault int

const (
	leaseForbidden leaseFault = iota
	leaseBroken
	leaseConflict
	// The request never arrives, and the wait for its answer ends.
	leaseTimeout
	// The request is served, and its answer is lost.
	leaseAnswerLost
)

// A leaseWeather lets requests for Leases fail, reads too, and no others.
type leaseWeather struct {
	mu      sync.Mutex
	rand    *rand.Rand
	faults  []leaseFault
	percent int
	failed  int
}

func newLeaseWeather() *leaseWeather {
	return &leaseWeather{rand: rand.New(rand.NewPCG(1, 0))}
}

// set how requests fail from now on, and how many of 100.
func (w *leaseWeather) set(faults []leaseFault, percent int) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.faults, w.percent = faults, percent
}

// failures returns how many requests failed so far.
func (w *leaseWeather) failures() int {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.failed
}

// untilFailed waits until so many requests have failed.
func (w *leaseWeather) untilFailed(t *testing.T, n int) {
	t.Helper()

	eventually(t, "requests for Leases fail", func() (bool, string) {
		got := w.failures()
		return got >= n, fmt.Sprintf("%d of %d have", got, n)
	})
}

func (w *leaseWeather) draw() (f leaseFault, fails bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if len(w.faults) == 0 || w.rand.IntN(100) >= w.percent {
		return 0, false
	}

	w.failed++

	return w.faults[w.rand.IntN(len(w.faults))], true
}

func (w *leaseWeather) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if classify(r).Resource != "leases" {
			return next.RoundTrip(r)
		}

		f, fails := w.draw()
		if !fails {
			return next.RoundTrip(r)
		}

		switch f {
		case leaseForbidden:
			return answer(r, http.StatusForbidden, metav1.StatusReasonForbidden)
		case leaseBroken:
			return answer(r, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		case leaseConflict:
			return answer(r, http.StatusConflict, metav1.StatusReasonConflict)
		case leaseTimeout:
			return nil, fmt.Errorf("injected: no answer: %w", os.ErrDeadlineExceeded)
		case leaseAnswerLost:
		}

		response, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}

		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()

		return nil, fmt.Errorf("injected: the answer got lost: %w", os.ErrDeadlineExceeded)
	})
}

// A line is what connects a process to the API server. When it is cut, requests
// fail from then on, those that are on their way and watches included: the process
// might as well be dead, but for what it does elsewhere.
type line struct {
	ctx context.Context //nolint:containedctx // It is what the line is: it ends when the line is cut.
	cut context.CancelFunc

	failed atomic.Int64
}

// refused returns how many requests were made after the line was cut.
func (l *line) refused() int { return int(l.failed.Load()) }

func newLine(t *testing.T) *line {
	t.Helper()

	ctx, cut := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cut)

	return &line{ctx: ctx, cut: cut}
}

func (l *line) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if l.ctx.Err() != nil {
			l.failed.Add(1)
			return nil, errors.New("injected: the line is cut")
		}

		ctx, cancel := context.WithCancel(r.Context())
		stop := context.AfterFunc(l.ctx, cancel)
		end := func() { stop(); cancel() }

		response, err := next.RoundTrip(r.WithContext(ctx))
		if err != nil {
			end()
			return nil, err
		}

		response.Body = &endingBody{ReadCloser: response.Body, end: end}

		return response, nil
	})
}

// An endingBody ends its request when it is closed.
type endingBody struct {
	io.ReadCloser

	end func()
}

func (b *endingBody) Close() error {
	defer b.end()

	return b.ReadCloser.Close()
}
