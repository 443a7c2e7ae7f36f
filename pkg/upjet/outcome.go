package upjet

import (
	"regexp"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// outcomeUnknown is an error of a create that may have made something. Its text is
// Terraform's.
type outcomeUnknown struct{ error }

func (e outcomeUnknown) Unwrap() []error { return []error{e.error, asyncstate.ErrOutcomeUnknown} }

// classified returns an error of a create that says whether its outcome is unknown.
// upjet turns Terraform's diagnostics into text, and providers turn errors into
// diagnostics: the text is all there is.
func classified(err error) error {
	text := err.Error()
	if asyncstate.OutcomeUnknown(errors.New(text)) || noID().MatchString(text) {
		return outcomeUnknown{err}
	}
	return err
}

// noID matches the texts of creates that Terraform takes for successful but returns no ID of.
func noID() *regexp.Regexp {
	return regexp.MustCompile(`failed to read the ID of the new resource|new state is empty after creation`)
}
