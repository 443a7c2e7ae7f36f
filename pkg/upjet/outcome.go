package upjet

import (
	"regexp"

	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// outcomeUnknown is an error of a create that may have made something. Its text is
// Terraform's.
type outcomeUnknown struct{ error }

func (e outcomeUnknown) Unwrap() []error { return []error{e.error, asyncstate.ErrOutcomeUnknown} }

// notRequested is the text of an error that came before any request. Its status says so to
// asyncstate.OutcomeUnknown, because the text may look like a time-out.
type notRequested struct{ text string }

func (e notRequested) Error() string { return e.text }

// GRPCStatus returns the status of a call that the external system has not carried out.
func (e notRequested) GRPCStatus() *status.Status {
	return status.New(codes.FailedPrecondition, e.text)
}

// classified returns an error of a create that says whether its outcome is unknown.
// upjet turns Terraform's diagnostics into text, and providers turn errors into
// diagnostics: the text is all there is.
func classified(err error) error {
	text := err.Error()
	if asyncstate.OutcomeUnknown(errors.New(text)) || succeeded.MatchString(text) {
		return outcomeUnknown{err}
	}
	return err
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
		return err
	}
	return managed.Terminal(err)
}

// refusedUpdate matches the texts of upjet's connectors for an update that would replace the
// external resource, or that is known to repeat for ever.
var refusedUpdate = regexp.MustCompile(`cannot change the value of the argument "|` +
	`diff contains fields that require resource replacement: |` +
	`update operation was blocked because of a possible update loop: `)
