package asyncstate

import (
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		reason string
		o      observed
		want   decision
	}{
		"UpToDate": {
			reason: "An external resource that is up to date needs nothing.",
			o:      observed{Exists: true, UpToDate: true, MayCreate: true, MayUpdate: true}, want: pass,
		},
		"Deleting": {
			reason: "A deletion begins no create or update, and Delete decides about the record.",
			o:      observed{Deleting: true, Recorded: true, MayCreate: true, MayUpdate: true}, want: pass,
		},
		"Done": {
			reason: "The record of an operation whose effect is observed should go.",
			o:      observed{Exists: true, UpToDate: true, Recorded: true, Backoff: time.Hour}, want: settle,
		},
		"NotAllowed": {
			reason: "The record of an update that is no longer allowed should go.",
			o:      observed{Exists: true, Recorded: true, MayCreate: true}, want: settle,
		},
		"CreateNotAllowed": {
			reason: "The record of a create that is no longer allowed should stay: it may have failed late.",
			o:      observed{Recorded: true}, want: pass,
		},
		"Absent": {
			reason: "An external resource that does not exist should be created.",
			o:      observed{MayCreate: true, Invisible: time.Hour}, want: begin,
		},
		"AbsentAfterFailure": {
			reason: "A create that failed should be made again after the backoff.",
			o:      observed{MayCreate: true, Recorded: true, Backoff: 1}, want: backOff,
		},
		"Outdated": {
			reason: "An external resource that is not up to date should be updated.",
			o:      observed{Exists: true, MayUpdate: true}, want: begin,
		},
		"OutdatedAfterFailure": {
			reason: "The backoff after a failure should come before the wait after a success.",
			o:      observed{Exists: true, MayUpdate: true, Recorded: true, Backoff: 1, Invisible: 1}, want: backOff,
		},
		"OutdatedAfterSuccess": {
			reason: "An update that succeeded and is not visible should be repeated later.",
			o:      observed{Exists: true, MayUpdate: true, Invisible: 1}, want: rest,
		},
		"AbsentMayUpdate": {
			reason: "Upstream updates an external resource that does not exist and may not be created.",
			o:      observed{MayUpdate: true, Invisible: 1}, want: rest,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := decide(tc.o); got != tc.want {
				t.Errorf("\n%s\ndecide(%+v): want %d, got %d", tc.reason, tc.o, tc.want, got)
			}
		})
	}
}
