package asyncstate_test

import (
	"testing"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// What makes no sense panics when the provider starts.
func TestNewTracker_Refuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		option func() asyncstate.TrackerOption
	}{
		"NoReader":     {reason: "There is nothing to read with.", option: func() asyncstate.TrackerOption { return asyncstate.WithLiveReader(nil) }},
		"NoLogger":     {reason: "It would fail in an operation.", option: func() asyncstate.TrackerOption { return asyncstate.WithLogger(nil) }},
		"NoRecorder":   {reason: "It would fail in an operation.", option: func() asyncstate.TrackerOption { return asyncstate.WithRecorder(nil) }},
		"NoMetrics":    {reason: "It would fail in an operation.", option: func() asyncstate.TrackerOption { return asyncstate.WithMetrics(nil) }},
		"NoTime":       {reason: "Every operation would be over.", option: func() asyncstate.TrackerOption { return asyncstate.WithTimeout(0) }},
		"NoWait":       {reason: "Absence would be believed at once.", option: func() asyncstate.TrackerOption { return asyncstate.WithAbsenceAfter(0) }},
		"NoBackoff":    {reason: "It would be tried without a break.", option: func() asyncstate.TrackerOption { return asyncstate.WithBackoff(0, 1) }},
		"NoMost":       {reason: "It would be tried without a break.", option: func() asyncstate.TrackerOption { return asyncstate.WithBackoff(1, 0) }},
		"NoOperations": {reason: "None could begin.", option: func() asyncstate.TrackerOption { return asyncstate.WithMaxOperations(0) }},
		"NoShutdown":   {reason: "No result could be stored.", option: func() asyncstate.TrackerOption { return asyncstate.WithShutdownTimeout(-1) }},
		"NoInterval":   {reason: "It would report without a break.", option: func() asyncstate.TrackerOption { return asyncstate.WithReportInterval(0) }},
		"NoOption":     {reason: "It can't be applied.", option: func() asyncstate.TrackerOption { return nil }},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if _, ok := recover().(error); !ok {
					t.Errorf("\n%s\nwant a panic with an error", tc.reason)
				}
			}()

			asyncstate.NewTracker(testkit.NewAPI().Client(), tc.option())
		})
	}
}
