package failure

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// retryAfter returns how long an answer asks the client to wait, and whether it asks at all. Azure's
// headers, which count milliseconds, take precedence because they are more precise.
func retryAfter(h http.Header, now time.Time) (after time.Duration, said bool) {
	for _, key := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if n, ok := number(h.Get(key)); ok {
			return limited(n, time.Millisecond), true
		}
	}
	text := strings.TrimSpace(h.Get("Retry-After"))
	if n, ok := number(text); ok {
		return limited(n, time.Second), true
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxAfter), true
	}
	// GitHub's is a Unix time, and is also there if calls remain.
	none := h.Get("X-Ratelimit-Remaining") == "0"
	if n, ok := number(h.Get("X-Ratelimit-Reset")); ok && none {
		after = min(max(time.Unix(min(n, 1<<40), 0).Sub(now), 0), maxAfter)
	}
	return after, none
}

// number parses a non-negative number of a header.
func number(text string) (n int64, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, _ = strconv.ParseInt(text, 10, 64) // Too large a number becomes the largest int64.
	return n, true
}

// limited returns n units, from zero to maxAfter.
func limited(n int64, unit time.Duration) time.Duration {
	return time.Duration(min(max(n, 0), int64(maxAfter/unit))) * unit
}

// retryInfo returns the delay in the details of a gRPC status, and whether there is one.
func retryInfo(s *status.Status) (after time.Duration, found bool) {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return min(max(info.GetRetryDelay().AsDuration(), 0), maxAfter), true
		}
	}
	return 0, false
}
