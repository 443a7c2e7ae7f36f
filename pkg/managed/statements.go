package managed

import (
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/failure"
)

// The functions of this file are for external clients and their connectors. They return an error that
// wraps err and says what it means, or nil if err is nil. The outermost of them decides, and none of them
// changes the text.
//
// Without them Graft looks for a status: in methods and fields such as StatusCode, in gRPC's statuses and
// in the errors of package net, then in the text, but not in what the text quotes. A client whose errors
// have a status in neither place states what they mean.

// NoAnswer says that the request may have been carried out although it failed. The outcome of a Create
// is unknown then: it is not repeated before it is known whether it created something.
func NoAnswer(err error) error {
	return failure.State(err, failure.Meaning{Answer: failure.NoAnswer})
}

// Refused says that the external system has not carried out the request. A Create has created nothing
// then, even if it has set an external name.
func Refused(err error) error {
	return failure.State(err, failure.Meaning{Answer: failure.Refused})
}

// Throttled says that the call was refused because the external system limits calls. It was not carried
// out, so a create is retried. But a Create that has set an external name has created something.
//
// With WithRateLimits no reconcile of the account starts until after has passed. If after is zero, that
// is a second, and twice as long each time up to a minute, until a call succeeds. Then the account
// continues at half of its rate, which recovers.
//
// Recognised without it are HTTP 429, HTTP 503 and 403 with Retry-After, HTTP 403 with
// X-RateLimit-Remaining: 0, gRPC ResourceExhausted with RetryInfo, and the codes of AWS, Azure and Google
// Cloud for throttling, but not if only the text has them.
func Throttled(err error, after time.Duration) error {
	return failure.State(err, failure.Meaning{Answer: failure.Unserved, Throttled: true, After: after})
}

// Terminal says that the call would fail again, such as with an invalid spec. It was not carried out. But
// a Create that has set an external name has created something.
//
// With WithRateLimits, Create and Update are not called again until the managed resource's spec, labels or
// annotations change, its provider config changes, a reconcile is requested by annotation, or the provider
// restarts. Annotations that the client sets don't count. The external resource is still observed at each
// poll. An error no longer counts once the external resource is up to date, and an error of Update once the
// external resource does not exist.
func Terminal(err error) error {
	return failure.State(err, failure.Meaning{Terminal: true})
}
