package oracle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

const (
	one = "one"
	two = "two"
)

// act of the user on a managed resource.
func act(object string, a history.Act) *history.Event {
	return &history.Event{Kind: history.KindAct, Object: object, Act: a}
}

func create(object string) *history.Event { return act(object, history.Act{Kind: history.Created}) }

// remove is the deletion of the first managed resource.
func remove() *history.Event { return act(one, history.Act{Kind: history.Deleted}) }

// call of a reconcile to the external system, with its effects.
func call(reconcile int, verb, name string, effects ...history.Effect) *history.Event {
	reads := verb == "GET"
	return &history.Event{
		Kind: history.KindRequest, Process: 1, Reconcile: reconcile, Effects: effects,
		Request: history.Request{
			Target: history.External, Verb: verb, Name: name, HTTP: true, Reads: reads, Writes: !reads,
		},
	}
}

func made(name string) history.Effect { return history.Effect{Name: name, Created: true, After: "1"} }

func gone(name string) history.Effect { return history.Effect{Name: name, Deleted: true, Before: "1"} }

// version of a managed resource that a process wrote.
func version(object string, v history.Version) *history.Event {
	v.Exists = true
	return &history.Event{Kind: history.KindObject, Process: 1, Object: object, Version: v}
}

func reconciles(object string) *history.Event {
	return &history.Event{Kind: history.KindReconcile, Process: 1, Reconcile: 1, Object: object}
}

// ready is a managed resource that is ready with an external resource.
func ready(name, external string) oracle.Object {
	return oracle.Object{
		Name: name, Conditions: "Ready=True", Version: history.Version{Exists: true, Ready: true, External: external},
	}
}

func absent() oracle.Object { return oracle.Object{Name: one} }

// state with external resources in state 1.
func state(created []string, external []string, objects ...oracle.Object) oracle.State {
	s := oracle.State{Objects: objects, External: map[string]string{}, Created: created}
	for _, name := range external {
		s.External[name] = "1"
	}
	return s
}

type judgeCase struct {
	reason string
	events []*history.Event
	final  oracle.State
	calm   *oracle.State
	want   []oracle.Verdict
}

func names(n ...string) []string { return n }

// objectCases are judged by the final state of a managed resource.
func objectCases() map[string]judgeCase {
	with := func(o oracle.Object, change func(o *oracle.Object)) oracle.Object {
		change(&o)
		return o
	}
	return map[string]judgeCase{
		"Ready": {
			"A managed resource that is ready with its external resource is right.",
			[]*history.Event{create(one)},
			state(names("a"), names("a"), ready(one, "a")), nil, nil,
		},
		"Gone": {
			"A managed resource that was deleted and is gone is right.",
			[]*history.Event{create(one), remove()},
			state(names("a"), nil, absent()), nil, nil,
		},
		"NotReady": {
			"A managed resource has to be ready.",
			[]*history.Event{create(one)},
			state(names("a"), names("a"), with(ready(one, "a"), func(o *oracle.Object) { o.Ready = false })), nil,
			[]oracle.Verdict{oracle.NeverReady},
		},
		"NoExternalResource": {
			"A managed resource needs its external resource.",
			[]*history.Event{create(one)},
			state(nil, nil, ready(one, "a")), nil,
			[]oracle.Verdict{oracle.NeverReady},
		},
		"DeletedByItself": {
			"A managed resource that the user did not delete has to exist.",
			[]*history.Event{create(one)},
			state(nil, nil, absent()), nil,
			[]oracle.Verdict{oracle.NeverReady},
		},
		"Paused": {
			"A managed resource that stays paused may have any state.",
			[]*history.Event{create(one), act(one, history.Act{Kind: history.Paused})},
			state(nil, nil, ready(one, "a")), nil, nil,
		},
		"Denied": {
			"A managed resource may have any state while each call is refused.",
			[]*history.Event{create(one), act("", history.Act{Kind: history.Denied})},
			state(nil, nil, ready(one, "a")), nil, nil,
		},
		"LostName": {
			"The name of an external resource that exists has to be known.",
			[]*history.Event{create(one)},
			state(names("a"), names("a"), ready(one, "")), nil,
			[]oracle.Verdict{oracle.LostName},
		},
		"Stopped": {
			"A create whose outcome a person has to determine is neither ready nor lost.",
			[]*history.Event{create(one)},
			state(names("a"), names("a"), with(ready(one, ""), func(o *oracle.Object) { o.Undecided = true })), nil,
			[]oracle.Verdict{oracle.Stopped},
		},
		"NeverDeleted": {
			"A managed resource that was deleted has to go with its external resource.",
			[]*history.Event{create(one), remove()},
			state(names("a"), names("a"), ready(one, "a")), nil,
			[]oracle.Verdict{oracle.NeverDeleted},
		},
		"FinalizerLeft": {
			"A managed resource without an external resource has to go.",
			[]*history.Event{create(one), remove()},
			state(names("a"), nil, ready(one, "a")), nil,
			[]oracle.Verdict{oracle.FinalizerLeft},
		},
		"CreatedAgain": {
			"A managed resource that is created again has to be ready, with a second external resource.",
			[]*history.Event{create(one), remove(), create(one)},
			state(names("a", "b"), names("b"), ready(one, "b")), nil, nil,
		},
	}
}

// resourceCases are judged by the external resources.
func resourceCases() map[string]judgeCase {
	changed := act(one, history.Act{Kind: history.Changed, State: "1"})
	calm := state(names("a"), nil, ready(one, "a"))
	calm.External["a"] = "2"
	updated := state(names("a"), nil, ready(one, "a"))
	updated.External["a"] = "2"
	withSecret := func(secret, details map[string]string) oracle.State {
		o := ready(one, "a")
		o.Secret, o.Details = secret, details
		return state(names("a"), names("a"), o)
	}
	complete := withSecret(map[string]string{"password": "x"}, nil)
	arrival := call(1, "PUT", "/a", made("a"))
	arrival.Kind = history.KindArrival
	return map[string]judgeCase{
		"SecondResource": {
			"A user who creates one managed resource wants one external resource.",
			[]*history.Event{create(one)},
			state(names("a", "b"), names("b"), ready(one, "b")), nil,
			[]oracle.Verdict{oracle.SecondResource},
		},
		"Drift": {
			"An external resource that was deleted behind the provider's back may be created again.",
			[]*history.Event{create(one), act(one, history.Act{Kind: history.Lost})},
			state(names("a", "a"), names("a"), ready(one, "a")), nil, nil,
		},
		"LateArrival": {
			"No provider can prevent that a call of a dead process creates a name again that was free.",
			[]*history.Event{create(one), call(1, "PUT", "/a", made("a")), call(2, "DELETE", "/a", gone("a")), arrival},
			state(names("a", "a"), names("a"), ready(one, "a")), nil, nil,
		},
		"Leak": {
			"An external resource without a managed resource is left.",
			[]*history.Event{create(one), remove()},
			state(names("a"), names("a"), absent()), nil,
			[]oracle.Verdict{oracle.Leak},
		},
		"Protected": {
			"An external resource of another owner is no leak.",
			[]*history.Event{
				act("", history.Act{Kind: history.Protected, External: "x", State: "1"}), create(one), remove(),
			},
			state(names("a"), names("x"), absent()), nil, nil,
		},
		"Orphaned": {
			"An external resource that the policies keep is no leak.",
			[]*history.Event{create(one), version(one, history.Version{External: "a", Orphans: true}), remove()},
			state(names("a"), names("a"), absent()), nil, nil,
		},
		"LostUpdate": {
			"A change has to show.",
			[]*history.Event{create(one), changed},
			state(names("a"), names("a"), ready(one, "a")), nil,
			[]oracle.Verdict{oracle.LostUpdate},
		},
		"Updated": {
			"A change that shows is right.", []*history.Event{create(one), changed}, updated, &calm, nil,
		},
		"NotBack": {
			"A change that is taken back has to show, too.",
			[]*history.Event{create(one), changed, act(one, history.Act{Kind: history.ChangedBack})},
			updated, nil,
			[]oracle.Verdict{oracle.LostUpdate},
		},
		"OtherThanCalm": {
			"An external resource has to end as it does without a fault.",
			[]*history.Event{create(one)},
			state(names("a"), names("a"), ready(one, "a")), &calm,
			[]oracle.Verdict{oracle.LostUpdate},
		},
		"SecretLost": {
			"A key that the secret has without a fault must not be missing.",
			[]*history.Event{create(one)},
			withSecret(map[string]string{"password": ""}, nil), &complete,
			[]oracle.Verdict{oracle.LostSecret},
		},
		"SecretOld": {
			"A value has to be the one that the external system has.",
			[]*history.Event{create(one)},
			withSecret(map[string]string{"password": "x"}, map[string]string{"password": "y"}), nil,
			[]oracle.Verdict{oracle.LostSecret},
		},
		"SecretRight": {
			"A secret with the current values is right.",
			[]*history.Event{create(one)},
			withSecret(map[string]string{"password": "x"}, map[string]string{"password": "x"}), &complete, nil,
		},
	}
}

// actCases are judged by the acts of the provider.
func actCases() map[string]judgeCase {
	right := state(names("a"), names("a"), ready(one, "a"))
	both := state(names("a", "b"), names("a", "b"), ready(one, "a"), ready(two, "b"))
	protect := act("", history.Act{Kind: history.Protected, External: "x", State: "1"})
	pause := act(one, history.Act{Kind: history.Paused})
	change := history.Effect{Name: "a", Before: "1", After: "2"}
	finalized := act(one, history.Act{Kind: history.Finalized, External: "f"})
	byUser := version(one, history.Version{Finalizers: names("f")})
	byUser.Process = 0
	shared := history.Version{External: "a", Ready: true}
	return map[string]judgeCase{
		"DeletesAnothers": {
			"An external resource of another owner must stay.",
			[]*history.Event{protect, create(one), call(1, "DELETE", "/x", gone("x"))},
			right, nil,
			[]oracle.Verdict{oracle.ActsOnAnothers},
		},
		"Released": {
			"An external resource that the user gave to the managed resource may change.",
			[]*history.Event{
				protect, create(one), act("", history.Act{Kind: history.Released, External: "x"}),
				call(1, "DELETE", "/x", gone("x")),
			},
			right, nil, nil,
		},
		"DeletesKept": {
			"An external resource that the policies keep must stay.",
			[]*history.Event{
				create(one), version(one, history.Version{External: "a", Orphans: true}), remove(),
				call(1, "DELETE", "/a", gone("a")),
			},
			state(names("a"), nil, absent()), nil,
			[]oracle.Verdict{oracle.ActsOnAnothers},
		},
		"ActsWhilePaused": {
			"Nothing may change while the managed resource is paused.",
			[]*history.Event{create(one), pause, reconciles(one), call(1, "PUT", "/a", change)},
			right, nil,
			[]oracle.Verdict{oracle.ActsWhilePaused},
		},
		"BegunBeforeThePause": {
			"A reconcile that had begun before the pause may finish.",
			[]*history.Event{create(one), reconciles(one), pause, call(1, "PUT", "/a", change)},
			right, nil, nil,
		},
		"OtherOneWhilePaused": {
			"The external resource of another managed resource may change.",
			[]*history.Event{create(one), create(two), pause, reconciles(two), call(1, "PUT", "/b", history.Effect{
				Name: "b", Before: "1", After: "2",
			})},
			both, nil, nil,
		},
		"Shared": {
			"Two managed resources must not be ready with one external resource.",
			[]*history.Event{create(one), create(two), version(one, shared), version(two, shared)},
			both, nil,
			[]oracle.Verdict{oracle.SharedResource},
		},
		"SharedByTheUser": {
			"A user may give two managed resources the same external name.",
			[]*history.Event{
				create(one), act(two, history.Act{Kind: history.CreatedShared}), version(one, shared),
				version(two, shared),
			},
			state(names("a"), names("a"), ready(one, "a"), ready(two, "a")), nil, nil,
		},
		"ForeignFinalizer": {
			"The provider must not remove a finalizer that another controller added.",
			[]*history.Event{create(one), finalized, version(one, history.Version{Finalizers: names("f")})},
			right, nil,
			[]oracle.Verdict{oracle.ForeignFinalizer},
		},
		"OwnFinalizer": {
			"Another controller may remove its own finalizer, and the provider its own.",
			[]*history.Event{create(one), finalized, byUser, version(one, history.Version{Finalizers: names("g")})},
			right,
			nil, nil,
		},
		"Panic": {
			"A panic is found, although all is well at the end.",
			[]*history.Event{create(one), {Kind: history.KindPanic, Text: "ouch"}},
			right, nil,
			[]oracle.Verdict{oracle.Panicked},
		},
		"Overdue": {
			"A reconcile that outlives its process is found.",
			[]*history.Event{create(one), {Kind: history.KindOverdue, Text: "late"}},
			right, nil,
			[]oracle.Verdict{oracle.Escaped},
		},
	}
}

func TestJudge(t *testing.T) {
	for _, cases := range []map[string]judgeCase{objectCases(), resourceCases(), actCases()} {
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				var got []oracle.Verdict
				vs := oracle.Judge(oracle.Run{Events: tc.events, Final: tc.final, Calm: tc.calm, Window: time.Minute})
				for _, v := range vs {
					got = append(got, v.Verdict)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("\n%s\nJudge(...): -want, +got:\n%s\n%v", tc.reason, diff, vs)
				}
			})
		}
	}
}
