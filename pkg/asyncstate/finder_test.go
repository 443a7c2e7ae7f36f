package asyncstate_test

import (
	"testing"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

func TestFinding(t *testing.T) {
	cases := map[string]struct {
		reason        string
		finding       asyncstate.Finding
		found, absent bool
	}{
		"Found":  {reason: "A name should mean that it was found.", finding: asyncstate.Found("n"), found: true},
		"Absent": {reason: "Absent should mean that there is none.", finding: asyncstate.Absent(), absent: true},
		"Zero":   {reason: "The zero value should mean that it is not known."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			expectEqual(
				t, tc.reason, "found, absent", []bool{tc.found, tc.absent},
				[]bool{tc.finding.Found(), tc.finding.Absent()},
			)
		})
	}
}
