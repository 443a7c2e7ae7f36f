package oracle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

// every returns n copies of an event, the first after three minutes, and the others an interval apart.
func every(d time.Duration, n int, e *history.Event) (out []*history.Event) {
	for i := range n {
		next := *e
		next.At = 3*time.Minute + time.Duration(i)*d
		out = append(out, &next)
	}
	return out
}

// TestJudge_Loops judges what happens in the last eight minutes of a run of ten minutes.
func TestJudge_Loops(t *testing.T) {
	const (
		end    = 10 * time.Minute
		window = 8 * time.Minute
	)
	settled := &history.Event{Kind: history.KindSettled}
	failed := &history.Event{Kind: history.KindReconciled, Process: 1, Object: one, Text: "no"}
	failed.Outcome.Failed = true
	fine := &history.Event{Kind: history.KindReconciled, Process: 1, Object: one, At: end}
	changes := version(one, history.Version{Fields: names("status.at")})
	cases := map[string]struct {
		reason string
		events []*history.Event
		want   string
	}{
		"Polls": {
			"Polls every ten seconds are no loop.", every(10*time.Second, 40, reconciles(one)), "",
		},
		"Reconciles": {
			"More reconciles than polls need are one.", every(time.Second, 100, reconciles(one)),
			"process 1 reconciled one",
		},
		"Changes": {
			"A field that changes at each poll is named.", every(time.Minute, 6, changes), "status.at",
		},
		"ChangesBefore": {
			"Changes right after a fault are no loop.", every(time.Second, 6, changes), "",
		},
		"Effects": {
			"An external resource that changes at each poll is named.",
			every(time.Minute, 6, call(1, "GET", "/a", history.Effect{Name: "a"})), `external resource "a"`,
		},
		"Writes": {
			"A call that names the external resource and changes nothing is futile.",
			every(time.Minute, 6, call(1, "PUT", "/vms/a")), `call "PUT /vms/a" was made 6 times`,
		},
		"Reads":    {"Reads are no loop.", every(time.Minute, 6, call(1, "GET", "/vms/a")), ""},
		"Sessions": {"A log-out names no external resource.", every(time.Minute, 6, call(1, "DELETE", "/session")), ""},
		"Queries":  {"A POST may be a query.", every(time.Minute, 6, call(1, "POST", "/vms/a/query")), ""},
		"Posts": {
			"A POST that had an effect before is futile without one.",
			append([]*history.Event{call(1, "POST", "/vms/a/size", history.Effect{Name: "a"})},
				every(time.Minute, 6, call(1, "POST", "/vms/a/size"))...), `call "POST /vms/a/size"`,
		},
		"Retries": {
			"A reconcile that fails for ever is a loop, although all is as the user wants it.",
			every(time.Minute, 6, failed), "retried for ever",
		},
		"RetriesEnd": {
			"Retries that end are no loop.", append(every(time.Minute, 6, failed), fine), "",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			vs := oracle.Judge(oracle.Run{
				Events: append([]*history.Event{create(one), settled}, tc.events...),
				Final:  state(names("a"), names("a"), ready(one, "a")), End: end, Window: window,
			})
			switch {
			case tc.want == "" && len(vs) > 0:
				t.Errorf("\n%s\nJudge(...): want none, got %v", tc.reason, vs)
			case tc.want == "":
			case len(vs) != 1 || vs[0].Verdict != oracle.HotLoop || !strings.Contains(vs[0].Text, tc.want):
				t.Errorf("\n%s\nJudge(...): want a hot loop with %q, got %v", tc.reason, tc.want, vs)
			}
		})
	}
}

// TestAdvise proves that the cause is chosen from the history.
func TestAdvise(t *testing.T) {
	failedRead := &history.Event{
		Kind: history.KindAnswer, Process: 1, Reconcile: 2, Request: call(2, "GET", "/a").Request,
		Outcome: history.Outcome{Failed: true, Status: 500},
	}
	async := oracle.Object{Name: one, Async: true}
	find := call(1, "Find", one)
	cases := map[string]struct {
		reason  string
		verdict oracle.Verdict
		events  []*history.Event
		final   oracle.State
		want    string
	}{
		"Forgotten": {
			"Without a look, the name was not stored.", oracle.SecondResource,
			[]*history.Event{call(1, "POST", "/", made("a")), call(2, "POST", "/", made("b"))},
			oracle.State{},
			"without a look",
		},
		"Repeated": {
			"Two creates of one reconcile are a client that repeats its requests.", oracle.SecondResource,
			[]*history.Event{call(1, "POST", "/", made("a")), call(1, "POST", "/", made("b"))},
			oracle.State{},
			"the client repeats a request",
		},
		"Absent": {
			"A look between the creates said absent.", oracle.SecondResource,
			[]*history.Event{
				call(1, "POST", "/", made("a")), call(2, "GET", "/?owner"), call(3, "POST", "/", made("b")),
			},
			oracle.State{},
			"took the external resource for absent",
		},
		"Mistaken": {
			"A read that failed was followed by a create.", oracle.SecondResource,
			[]*history.Event{call(1, "POST", "/", made("a")), failedRead, call(2, "POST", "/", made("b"))},
			oracle.State{},
			`was taken for "not found"`,
		},
		"Again": {
			"A name that appears twice was deleted and created again.", oracle.SecondResource, nil,
			oracle.State{Created: names("a", "a")},
			"created again under the same name",
		},
		"StoppedAsync": {
			"The tracker asks the client itself.", oracle.Stopped, nil,
			oracle.State{Objects: []oracle.Object{async}},
			"asynchronous create",
		},
		"StoppedFinder": {
			"A Finder that was asked has no answer.", oracle.Stopped,
			[]*history.Event{find},
			oracle.State{},
			"The Finder does not say",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := oracle.Advise(tc.verdict, oracle.Run{Events: tc.events, Final: tc.final})
			if !strings.Contains(got.Cause, tc.want) {
				t.Errorf("\n%s\nAdvise(...): want %q in %q", tc.reason, tc.want, got.Cause)
			}
		})
	}
	for _, v := range oracle.Verdicts() {
		if a := oracle.Advise(v, oracle.Run{}); a.Cause == "" || a.Remedy == "" {
			t.Errorf("Advise(%q): want a cause and a remedy, got %+v", v, a)
		}
	}
}
