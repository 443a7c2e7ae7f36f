package seam

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestRequeue(t *testing.T) {
	poll := reconcile.Result{RequeueAfter: time.Minute}
	backoff := reconcile.Result{Requeue: true}
	after := func(d time.Duration) reconcile.Result { return reconcile.Result{RequeueAfter: d} }

	cases := map[string]struct {
		reason string
		asked  []Requeue
		result reconcile.Result
		want   reconcile.Result
	}{
		"Nothing":            {reason: "What is not asked changes nothing.", result: poll, want: poll},
		"Backoff":            {reason: "Backoff replaces a poll.", asked: []Requeue{WithBackoff()}, result: poll, want: backoff},
		"BackoffFirst":       {reason: "Backoff comes before delays.", asked: []Requeue{Within(time.Second), WithBackoff(), InsteadOfBackoff(time.Second)}, result: poll, want: backoff},
		"WithinPoll":         {reason: "A poll is made earlier.", asked: []Requeue{Within(time.Second)}, result: poll, want: after(time.Second)},
		"WithinLater":        {reason: "A poll that is earlier stays.", asked: []Requeue{Within(time.Hour)}, result: poll, want: poll},
		"WithinNone":         {reason: "What would not run again does.", asked: []Requeue{Within(time.Hour)}, want: after(time.Hour)},
		"WithinBackoff":      {reason: "A backoff may be shorter.", asked: []Requeue{Within(time.Second)}, result: backoff, want: backoff},
		"WithinOverdue":      {reason: "What is overdue runs at once.", asked: []Requeue{Within(-time.Second)}, result: poll, want: after(1)},
		"ShorterWithin":      {reason: "The shorter of two delays counts.", asked: []Requeue{Within(time.Second), Within(2 * time.Second)}, result: poll, want: after(time.Second)},
		"ShorterWithinLast":  {reason: "In whatever order.", asked: []Requeue{Within(2 * time.Second), Within(time.Second)}, result: poll, want: after(time.Second)},
		"Instead":            {reason: "A backoff is replaced.", asked: []Requeue{InsteadOfBackoff(time.Hour)}, result: backoff, want: after(time.Hour)},
		"InsteadOfPoll":      {reason: "A poll is not.", asked: []Requeue{InsteadOfBackoff(time.Second)}, result: poll, want: poll},
		"InsteadOfNothing":   {reason: "Nor is nothing.", asked: []Requeue{InsteadOfBackoff(time.Second)}},
		"ShorterInstead":     {reason: "The shorter of two delays counts.", asked: []Requeue{InsteadOfBackoff(time.Hour), InsteadOfBackoff(time.Minute)}, result: backoff, want: after(time.Minute)},
		"WithinAndInstead":   {reason: "Each is for its own result.", asked: []Requeue{Within(time.Second), InsteadOfBackoff(time.Minute)}, result: backoff, want: after(time.Minute)},
		"DelayBeforeBackoff": {reason: "A result with both counts as a delay.", asked: []Requeue{Within(time.Second)}, result: reconcile.Result{Requeue: true, RequeueAfter: time.Minute}, want: after(time.Second)},
		"PriorityIsKept":     {reason: "The priority of the request is the inner reconciler's.", asked: []Requeue{WithBackoff()}, result: reconcile.Result{Priority: new(int)}, want: reconcile.Result{Requeue: true, Priority: new(int)}},
		"PriorityOfADelay":   {reason: "Also with a delay.", asked: []Requeue{Within(1)}, result: reconcile.Result{Priority: new(int)}, want: reconcile.Result{RequeueAfter: 1, Priority: new(int)}},
		"PriorityOfInstead":  {reason: "Also in place of a backoff.", asked: []Requeue{InsteadOfBackoff(1)}, result: reconcile.Result{Requeue: true, Priority: new(int)}, want: reconcile.Result{RequeueAfter: 1, Priority: new(int)}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &Session{}
			for _, r := range tc.asked {
				s.Requeue(r)
			}

			wants(t, tc.reason, "decide(...)", tc.want, s.requeue.decide(tc.result))
		})
	}
}

func TestSlot(t *testing.T) {
	var a, b Slot[int]

	s, other := &Session{}, &Session{}

	if a.Find(s) != nil || a.Find(nil) != nil {
		t.Error("there is a value before In was called")
	}

	*a.In(s), *b.In(s), *a.In(nil) = 1, 2, 3

	wants(t, "", "values", []int{1, 2, 0}, []int{*a.In(s), *b.Find(s), *a.In(other)})
}
