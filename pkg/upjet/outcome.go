package upjet

import (
	"regexp"
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/failure"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
)

// unknown returns the error of a create that may have made something.
func unknown(err error) error { return managed.NoAnswer(err) }

// notRequested returns an error that came before any request, although its text may look like a time-out.
func notRequested(err error) error {
	m := failure.OfText(err.Error())
	return failure.State(err, failure.Meaning{Answer: failure.Unserved, Throttled: m.Throttled})
}

// classified returns an error of a provider with the meaning of its text: upjet turns Terraform's
// diagnostics into text, and providers turn errors into diagnostics. An account is closed for a minute at
// most, because the text names no time that counts.
func classified(err error) error {
	if err == nil {
		return nil
	}
	m := failure.Of(err, time.Time{})
	if m.Evidence == failure.Stated {
		return err
	}
	if m = failure.OfText(err.Error()); succeeded.MatchString(err.Error()) {
		m.Answer = failure.NoAnswer
	}
	if m == (failure.Meaning{}) {
		return err
	}
	return failure.State(err, m)
}

// succeeded matches the texts of upjet's connectors for creates that Terraform takes for successful, but whose state
// they cannot use.
var succeeded = regexp.MustCompile(`failed to read the ID of the new resource|new state is empty after creation|` +
	`cannot unmarshal planned state|cannot convert native state to go map|` +
	`failed to set the external-name of the managed resource during create`)

// judged returns an error of an update. An update that upjet has refused before any request is
// refused again until the managed resource changes.
func judged(err error) error {
	if err == nil || !refusedUpdate.MatchString(err.Error()) {
		return classified(err)
	}
	return ratelimit.Terminal(err)
}

// refusedUpdate matches the texts of upjet's connectors for an update that would replace the
// external resource, or that is known to repeat for ever.
var refusedUpdate = regexp.MustCompile(`cannot change the value of the argument "|` +
	`diff contains fields that require resource replacement: |` +
	`update operation was blocked because of a possible update loop: `)
