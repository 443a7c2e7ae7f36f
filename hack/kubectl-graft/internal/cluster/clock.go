package cluster

import (
	"net/http"
	"sync/atomic"
	"time"
)

// A clock is set by the answers of the API server, whose processes write the times of objects. The own clock may differ.
type clock struct {
	local func() time.Time
	ahead atomic.Int64 // How far the API server's clock is ahead of the own one. It is 0 if no answer has a time.
}

// Now returns the time of the API server.
func (c *Cluster) Now() time.Time { return c.clock.local().Add(time.Duration(c.clock.ahead.Load())) }

// follow returns a transport that sets the clock.
func (c *clock) follow(next http.RoundTripper) http.RoundTripper { return &follower{next, c} }

type follower struct {
	http.RoundTripper

	clock *clock
}

// RoundTrip sends a request.
func (f *follower) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := f.RoundTripper.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
		f.clock.ahead.Store(int64(at.Sub(f.clock.local())))
	}
	return answer, nil
}
