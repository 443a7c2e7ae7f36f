package managed

import (
	"testing"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/failure"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

func TestClassify(t *testing.T) {
	errBoom := errors.New("boom")
	lost := failure.Meaning{Answer: failure.NoAnswer, Evidence: failure.Text}
	cases := map[string]struct {
		reason string
		create returnedCreate
		want   attemptOutcome
	}{
		"Untried": {
			reason: "A create that was not sent should count as failed.",
			create: returnedCreate{state: seam.Untried, err: errBoom, exists: true, named: true},
			want:   attemptFailed,
		},
		"Withdrawn": {
			reason: "A create that was not sent should be withdrawn if nothing is to be looked up.",
			create: returnedCreate{state: seam.Untried, err: errBoom, withdrawn: true},
			want:   attemptWithdrawn,
		},
		"InProgress": {
			reason: "A create that is in progress should have no outcome.",
			create: returnedCreate{state: seam.InProgress}, want: attemptUnknown,
		},
		"Unknown": {
			reason: "A create whose outcome is unknown should have no outcome, also with a name.",
			create: returnedCreate{state: seam.Unknown, err: errBoom, named: true}, want: attemptUnknown,
		},
		"Named": {
			reason: "A create that set a name should have created something.",
			create: returnedCreate{err: errBoom, named: true}, want: attemptSucceeded,
		},
		"NoAnswer": {
			reason: "The create with a known name may arrive later.",
			create: returnedCreate{err: errBoom, meaning: lost, deterministic: true}, want: attemptNoAnswer,
		},
		"NoAnswerNamed": {
			reason: "A create that set a name should have created something, with or without an answer.",
			create: returnedCreate{err: errBoom, meaning: lost, named: true}, want: attemptSucceeded,
		},
		"NoAnswerOfUnknownName": {
			reason: "As with upstream, a create without an answer should fail if nothing can look it up.",
			create: returnedCreate{err: errBoom, meaning: lost}, want: attemptFailed,
		},
		"Failed": {
			reason: "A create that failed should count as failed.",
			create: returnedCreate{err: errBoom, deterministic: true}, want: attemptFailed,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testkit.ExpectEqual(t, tc.reason, "outcome", tc.want, classify(tc.create))
		})
	}
}
