package ratelimit

import (
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/failure"
)

// Throttled says that the call was refused because the external system limits calls. It was not carried
// out, so a create is retried. But a Create that has set an external name has created something.
//
// With the option With no reconcile of the account starts until after has passed. If after is zero, that
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
// With the option With, Create and Update are not called again until the managed resource's spec, labels or
// annotations change, its provider config changes, a reconcile is requested by annotation, or the provider
// restarts. Annotations that the client sets don't count. The external resource is still observed at each
// poll. An error no longer counts once the external resource is up to date, and an error of Update once the
// external resource does not exist.
func Terminal(err error) error {
	return failure.State(err, failure.Meaning{Terminal: true})
}
