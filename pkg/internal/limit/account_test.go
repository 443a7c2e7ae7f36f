package limit

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/pkg/internal/failure"
)

// throttledFor returns the error of a call that the external system throttles.
func throttledFor(after time.Duration) error {
	return failure.State(
		errors.New("slow down"), failure.Meaning{Answer: failure.Unserved, Throttled: true, After: after},
	)
}

func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func TestNewAccounts(t *testing.T) {
	cases := map[string]struct {
		reason    string
		perSecond float64
		burst     int
		want      string
	}{
		"Valid": {reason: "A fraction of a call a second is a valid rate.", perSecond: 0.1, burst: 1},
		"ZeroRate": {
			reason:    "A rate of zero would stop all reconciles.",
			perSecond: 0,
			burst:     1,
			want:      "the rate is 0 calls a second: pass a finite number greater than 0",
		},
		"Negative": {
			reason:    "A negative rate has no meaning.",
			perSecond: -1,
			burst:     1,
			want:      "the rate is -1 calls a second: pass a finite number greater than 0",
		},
		"NaN": {
			reason:    "NaN compares with nothing.",
			perSecond: math.NaN(),
			burst:     1,
			want:      "the rate is NaN calls a second: pass a finite number greater than 0",
		},
		"Infinite": {
			reason:    "An infinite rate is no limit.",
			perSecond: math.Inf(1),
			burst:     1,
			want:      "the rate is +Inf calls a second: pass a finite number greater than 0",
		},
		"ZeroBurst": {
			reason:    "Without a burst no call can ever be made.",
			perSecond: 1,
			burst:     0,
			want:      "the burst is 0: pass how many calls may be made at once, 1 or more",
		},
		"MinusABurst": {
			reason:    "A negative burst has no meaning.",
			perSecond: 1,
			burst:     -3,
			want:      "the burst is -3: pass how many calls may be made at once, 1 or more",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			as, err := NewAccounts(tc.perSecond, tc.burst)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nNewAccounts(...): -want, +got:\n%s", tc.reason, diff)
			}
			if (as == nil) != (err != nil) {
				t.Errorf("\n%s\nNewAccounts(...): got %v and %v", tc.reason, as, err)
			}
		})
	}
}

// An arrival is a reconcile that asks for a token.
type arrival struct {
	at    time.Time
	uid   types.UID
	class Class
	since time.Time
	asked int
	place *Place
}

type arrivals []arrival

func (q arrivals) Len() int           { return len(q) }
func (q arrivals) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q arrivals) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *arrivals) Push(x any) {
	r, _ := x.(arrival)
	*q = append(*q, r)
}

func (q *arrivals) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// simulate reconciles until all have started. It calls started for each that does.
func simulate(a *Account, q arrivals, started func(r arrival)) (end time.Time) {
	heap.Init(&q)
	for q.Len() > 0 {
		r, _ := heap.Pop(&q).(arrival)
		end = r.at
		r.asked++
		var wait time.Duration
		if r.place, wait = a.Admit(r.place, r.class, r.at); wait > 0 {
			// Work queues are not punctual.
			r.at = r.at.Add(wait + time.Millisecond)
			heap.Push(&q, r)
			continue
		}
		started(r)
	}
	return end
}

func backlog(n int, c Class, at time.Time) arrivals {
	var q arrivals
	for i := range n {
		q = append(q, arrival{
			at:    at,
			since: at,
			uid:   types.UID(fmt.Sprintf("%d-%d-%d", c, at.UnixNano(), i)),
			class: c,
		})
	}
	return q
}

func TestAdmit_UsesTheWholeRate(t *testing.T) {
	a := newAccount(&Counts{}, 50, 50)
	started, asked := 0, 0
	end := simulate(a, backlog(5000, Poll, start()), func(r arrival) { started++; asked += r.asked })

	if started != 5000 {
		t.Errorf("All reconciles of a backlog should start: got %d", started)
	}
	if used := float64(started) / end.Sub(start()).Seconds() / 50; used < 0.99 {
		t.Errorf("A backlog should use the whole rate: used %.3f of it", used)
	}
	if asked > 3*started {
		t.Errorf("A reconcile should come back when its token is due: asked %d times for %d tokens", asked, started)
	}
	if !a.waiting.empty() {
		t.Errorf("Nothing should be kept of reconciles that have started: got %v", a.waiting)
	}
}

func TestAdmit_UrgentComesFirst(t *testing.T) {
	cases := map[string]struct {
		reason string
		burst  int
		most   time.Duration
	}{
		"Burst": {
			reason: "Urgent reconciles should take the share that is reserved for them.",
			burst:  50,
			most:   100 * time.Millisecond,
		},
		"NoBurst": {
			reason: "Urgent reconciles should come before a backlog without a reserved share, too.",
			burst:  1,
			most:   200 * time.Millisecond,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAccount(&Counts{}, 50, tc.burst)
			q := backlog(3000, Poll, start())
			for i := range 50 {
				q = append(q, backlog(1, Urgent, start().Add(5*time.Second+time.Duration(i)*time.Second))...)
			}
			var waits []time.Duration
			polls := map[types.UID]int{}
			end := simulate(a, q, func(r arrival) {
				if r.class == Urgent {
					waits = append(waits, r.at.Sub(r.since))
					// A create follows.
					a.Charge(1, r.at)
					return
				}
				polls[r.uid] = r.asked
			})
			if most := slices.Max(waits); most > tc.most {
				t.Errorf("\n%s\nwaited %s", tc.reason, most)
			}
			if used := 3100 / end.Sub(start()).Seconds() / 50; used < 0.96 {
				t.Errorf("Urgent reconciles should not waste tokens: used %.3f of the rate", used)
			}
			total := 0
			for _, n := range polls {
				total += n
			}
			if total > 8*len(polls) {
				t.Errorf(
					"Reconciles whose token was spent should not hammer the queue: asked %d times for %d tokens",
					total, len(polls),
				)
			}
		})
	}
}

func TestAdmit_KeepsTheOrder(t *testing.T) {
	a := newAccount(&Counts{}, 10, 1)
	q := backlog(20, Poll, start())
	for i := range q {
		q[i].at = q[i].at.Add(time.Duration(i) * time.Millisecond)
	}
	// They find tokens that others wait for.
	for i := range 20 {
		q = append(q, backlog(1, Poll, start().Add(time.Duration(i)*90*time.Millisecond+time.Second))...)
	}
	want := make([]types.UID, 0, 20)
	for _, r := range q[:20] {
		want = append(want, r.uid)
	}
	var got []types.UID
	simulate(a, q, func(r arrival) { got = append(got, r.uid) })
	if diff := cmp.Diff(want, got[:20]); diff != "" {
		t.Errorf("Newer reconciles should not take the tokens of older ones: -want, +got:\n%s", diff)
	}
}

func TestAdmit_UrgentComesBeforeExpensivePolls(t *testing.T) {
	a := newAccount(&Counts{}, 40, 40)
	q := backlog(2000, Poll, start())
	for i := range 30 {
		q = append(q, backlog(1, Urgent, start().Add(time.Duration(i)*10*time.Second))...)
	}
	var most time.Duration
	simulate(a, q, func(r arrival) {
		if r.class == Poll {
			a.Charge(7, r.at)
			return
		}
		most = max(most, r.at.Sub(r.since))
	})
	if most > 2*time.Second {
		t.Errorf("An urgent reconcile should not wait for polls that need many tokens each: one waited %s", most)
	}
}

func TestAdmit_LessUrgentIsNotStarved(t *testing.T) {
	const perSecond, seconds = 10, 600
	cases := map[string]struct {
		reason string
		more   Class // too many of them arrive all the time
		less   Class // one a second
		burst  int
	}{
		"UrgentAndSettling": {
			reason: "Managed resources should become ready although more urgent ones need all tokens.",
			more:   Urgent,
			less:   Settling,
			burst:  10,
		},
		"UrgentAndPoll": {
			reason: "Managed resources should be polled although urgent ones need all tokens.",
			more:   Urgent,
			less:   Poll,
			burst:  10,
		},
		"SettlingAndPoll": {
			reason: "Managed resources should be polled although those that are not ready need all tokens.",
			more:   Settling,
			less:   Poll,
			burst:  10,
		},
		"NoBurst": {
			reason: "Managed resources should be polled also without tokens that are left to more urgent ones.",
			more:   Settling,
			less:   Poll,
			burst:  1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAccount(&Counts{}, perSecond, tc.burst)
			var q arrivals
			for i := range seconds {
				at := start().Add(time.Duration(i) * time.Second)
				q = append(q, backlog(1, tc.less, at)...)
				q = append(q, backlog(perSecond, tc.more, at)...)
			}
			less, more := 0, 0
			simulate(a, q, func(r arrival) {
				switch {
				case r.at.Sub(start()) >= seconds*time.Second:
				case r.class == tc.less:
					less++
				default:
					more++
					// Each third one makes a second call.
					if more%3 == 0 {
						a.Charge(1, r.at)
					}
				}
			})
			if less < seconds/2 {
				t.Errorf("\n%s\n%d of %d started in time", tc.reason, less, seconds)
			}
			if most := perSecond * seconds * 2 / 10; less > most {
				t.Errorf("More urgent reconciles should get most of the tokens: %d of others started", less)
			}
		})
	}
}

// TestAdmit_LostPlaceIsMadeUpFor lets as many reconciles arrive as the account has tokens, so that no token is left
// over for one that has lost its own.
func TestAdmit_LostPlaceIsMadeUpFor(t *testing.T) {
	const perSecond, seconds = 10, 600
	cases := map[string]struct {
		reason string
		class  Class
		burst  int
		urgent int // reconciles at each tenth second
		charge int // calls of each of them that do not wait
	}{
		"UrgentAndPoll": {
			reason: "Polls whose tokens went to urgent reconciles should start.",
			class:  Poll, burst: 10, urgent: 10,
		},
		"UrgentAndSettling": {
			reason: "Managed resources that are not ready should start if their tokens went to urgent ones.",
			class:  Settling, burst: 10, urgent: 10,
		},
		"NoBurst": {
			reason: "Polls whose tokens went to urgent reconciles should start without a reserve, too.",
			class:  Poll, burst: 1, urgent: 10,
		},
		"Charged": {
			reason: "Polls should start whose tokens went to calls that do not wait.",
			class:  Poll, burst: 10, urgent: 1, charge: 9,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAccount(&Counts{}, perSecond, tc.burst)
			var q arrivals
			for i := range seconds {
				at := start().Add(time.Duration(i) * time.Second)
				for j := range perSecond {
					q = append(q, backlog(1, tc.class, at.Add(time.Duration(j)*time.Second/perSecond))...)
				}
				if i < 100 && i%10 == 0 {
					q = append(q, backlog(tc.urgent, Urgent, at)...)
				}
			}
			longest := time.Duration(0)
			simulate(a, q, func(r arrival) {
				if r.class == Urgent {
					a.Charge(tc.charge, r.at)
				}
				longest = max(longest, r.at.Sub(r.since))
			})
			// The others took the tokens of ten seconds. Places are lost more than once meanwhile.
			if longest > 25*time.Second {
				t.Errorf("\n%s\nOne waited %s", tc.reason, longest)
			}
		})
	}
}

func TestAdmit_UrgentComesFirstAfterThrottling(t *testing.T) {
	a := newAccount(&Counts{}, 50, 50)
	opens := start().Add(30 * time.Second)
	polls := 0
	simulate(a, append(backlog(2000, Poll, start()), backlog(1, Urgent, opens)...), func(r arrival) {
		switch {
		case r.class == Urgent:
			if waited := r.at.Sub(r.since); waited > 100*time.Millisecond {
				t.Errorf("Polls that return while the account is closed should not come first: waited %s", waited)
			}
		case polls == 100:
			a.Throttled(opens.Sub(r.at), r.at, r.at)
		}
		polls++
	})
}

// ask returns how long a new reconcile waits.
func ask(a *Account, c Class, now time.Time) time.Duration {
	_, wait := a.Admit(nil, c, now)
	return wait
}

// waitAll returns the places of n reconciles that ask at once.
func waitAll(a *Account, n int, c Class, now time.Time) []*Place {
	var places []*Place
	for range n {
		p, _ := a.Admit(nil, c, now)
		places = append(places, p)
	}
	return places
}

func TestAdmit_PlacesThatAreGivenUp(t *testing.T) {
	cases := map[string]struct {
		reason string
		left   int // of 3000 urgent reconciles that wait
		class  Class
		most   time.Duration
	}{
		"All":        {"A new reconcile should not wait for places that are given up.", 3000, Urgent, 0},
		"Some":       {"A new reconcile should not wait for those that return later.", 2990, Urgent, 0},
		"LessUrgent": {"A poll should not wait for more urgent places that are given up.", 3000, Poll, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAccount(&Counts{}, 10, 10)
			places := waitAll(a, 3000, Urgent, start())
			now := start().Add(10 * time.Second)
			for _, p := range places[:tc.left] {
				p.Leave()
			}
			if wait := ask(a, tc.class, now); wait > tc.most {
				t.Errorf("\n%s\nAdmit(...): waits %s", tc.reason, wait)
			}

			// All others still get the whole rate.
			n := 0
			end := simulate(a, backlog(500, Poll, now), func(arrival) { n++ })
			if took := end.Sub(now); took > 55*time.Second {
				t.Errorf("\n%s\n%d more reconciles should use the whole rate: took %s", tc.reason, n, took)
			}
		})
	}
}

func TestAdmit_Event(t *testing.T) {
	a := newAccount(&Counts{}, 1, 1)
	waitAll(a, 1, Poll, start())
	places := waitAll(a, 2, Poll, start())
	again := func(i int, c Class, after time.Duration) (wait time.Duration) {
		places[i], wait = a.Admit(places[i], c, start().Add(after))
		return wait
	}
	got := []time.Duration{
		again(1, Poll, 300*time.Millisecond), again(0, Poll, 300*time.Millisecond), again(0, Poll, time.Second),
	}
	if diff := cmp.Diff([]time.Duration{1700 * time.Millisecond, 700 * time.Millisecond, 0}, got); diff != "" {
		t.Errorf("An event should not change the turn of a reconcile that waits: -want, +got:\n%s", diff)
	}
}

func TestAdmit_ChangesItsClass(t *testing.T) {
	a := newAccount(&Counts{}, 1, 10)
	waitAll(a, 100, Poll, start())
	p, wait := a.Admit(nil, Poll, start())
	if wait < 80*time.Second {
		t.Errorf("A poll should wait for the backlog: got %s", wait)
	}
	if p, wait = a.Admit(p, Urgent, start()); wait > time.Second {
		t.Errorf("A poll whose spec changes meanwhile should come next: waits %s", wait)
	}
	if _, wait = a.Admit(p, Poll, start()); wait < 80*time.Second {
		t.Errorf("A reconcile that is no longer urgent should wait for the backlog: waits %s", wait)
	}
}

func TestAdmit_ForgetsThoseThatDoNotComeBack(t *testing.T) {
	a := newAccount(&Counts{}, 100, 1)
	waitAll(a, 1000, Poll, start())
	later := start().Add(time.Hour)
	waitAll(a, 1000, Poll, later)
	waitAll(a, 200, Poll, later.Add(time.Hour))
	if n := len(a.waiting.queues[Poll]); n > 1400 {
		t.Errorf("Objects that no longer exist should be forgotten: %d wait", n)
	}
}

func TestCharge(t *testing.T) {
	a := newAccount(&Counts{}, 10, 5)
	a.Charge(25, start())
	if got, want := ask(a, Urgent, start()), 2100*time.Millisecond; got != want {
		t.Errorf("A reconcile should wait for the tokens of calls that did not wait: want %s, got %s", want, got)
	}
	a.Charge(math.MaxInt, start())
	if got := a.available(start()); got < -601 {
		t.Errorf("The debt of an account should be bounded: got %v tokens", got)
	}
	a.Charge(-5, start())
	if got := a.available(start()); got > -600 {
		t.Errorf("A negative charge should return nothing: got %v tokens", got)
	}
}

func TestRefund(t *testing.T) {
	a := newAccount(&Counts{}, 1, 2)
	ask(a, Urgent, start())
	a.Refund(start())
	a.Refund(start())
	if got := a.available(start()); got > 2 {
		t.Errorf("A bucket should not get more tokens than its burst: got %v", got)
	}
}

func TestMeter_CallsAfterClose(t *testing.T) {
	a := newAccount(&Counts{}, rate.Every(time.Hour), 2)
	ask(a, Urgent, time.Now())
	m := &Meter{}
	m.Open(a, true)
	m.Close()
	m.Charge()
	if got := a.available(time.Now()); got > 1.5 {
		t.Errorf("A call of an operation that outlives its reconcile should be charged: %v tokens are left", got)
	}
}

func TestThrottled(t *testing.T) {
	cases := map[string]struct {
		reason string
		after  time.Duration
		want   time.Duration
	}{
		"Seconds": {
			reason: "The account should be closed for as long as the external system asks.",
			after:  30 * time.Second,
			want:   30 * time.Second,
		},
		"Unknown": {
			reason: "The account should be closed for a second if the external system doesn't say for how long.",
			want:   time.Second,
		},
		"Negative": {reason: "A negative time should be an unknown one.", after: -time.Hour, want: time.Second},
		"Forever":  {reason: "The account should not be closed for ever.", after: math.MaxInt64, want: 24 * time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAccount(&Counts{}, 50, 50)
			if diff := cmp.Diff(start().Add(tc.want), a.Throttled(tc.after, start(), start())); diff != "" {
				t.Errorf("\n%s\nThrottled(...): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, ask(a, Urgent, start())); diff != "" {
				t.Errorf("\n%s\nAdmit(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestThrottled_HalvesTheRate(t *testing.T) {
	a := newAccount(&Counts{}, 64, 10)
	limits := func(at time.Duration) rate.Limit {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.recover(start().Add(at))
		return a.bucket.Limit()
	}
	a.Throttled(10*time.Second, start(), start())
	a.Throttled(5*time.Second, start(), start().Add(time.Second)) // It was in progress.
	got := []rate.Limit{limits(5 * time.Second), limits(14 * time.Second)}
	a.Throttled(time.Second, start().Add(13*time.Second), start().Add(14*time.Second))
	got = append(got, limits(15*time.Second), limits(20*time.Second), limits(15*time.Second+8*recoveryInterval))
	for i := range 20 {
		at := start().Add(100*time.Second + time.Duration(i)*2*time.Second)
		a.Throttled(time.Second, at, at)
	}
	got = append(got, limits(140*time.Second))
	if diff := cmp.Diff([]rate.Limit{32, 32, 16, 22.4, 64, 2}, got); diff != "" {
		t.Errorf("The rate should be halved once for each throttling, and recover: -want, +got:\n%s", diff)
	}
	if until := a.Closed(); !until.Equal(start().Add(139 * time.Second)) {
		t.Errorf("The account should be closed until the last answer says: got %s", until)
	}
}

func TestThrottled_LateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(&Counts{}, 64, 64)

		// The client retries for a while, each call for longer than the account is closed after
		// the one before.
		for i := range 5 {
			m := &Meter{}
			m.Open(a, true)
			go func() {
				_, _ = Call(m, func() (int, error) {
					time.Sleep(time.Duration(i+1) * 2 * time.Second)
					return 0, throttledFor(0)
				})
			}()
		}
		time.Sleep(10*time.Second + 1)
		if diff := cmp.Diff(rate.Limit(32), a.bucket.Limit()); diff != "" {
			t.Errorf("The rate should be halved once for all calls that were in progress: -want, +got:\n%s", diff)
		}
		if until := a.Closed(); !until.After(time.Now()) {
			t.Errorf("The account should be closed also after a late answer: got %s", until)
		}

		time.Sleep(time.Second)
		m := &Meter{}
		m.Open(a, true)
		_, _ = Call(m, func() (int, error) { return 0, throttledFor(0) })
		if diff := cmp.Diff(rate.Limit(16), a.bucket.Limit()); diff != "" {
			t.Errorf("The rate should be halved again for a call that began later: -want, +got:\n%s", diff)
		}
	})
}

func TestThrottled_ClosesLonger(t *testing.T) {
	a, now := newAccount(&Counts{}, 50, 50), start()
	closed := func(after time.Duration) time.Duration {
		got := a.Throttled(after, now, now).Sub(now)
		now = now.Add(got)
		return got
	}
	var got []time.Duration
	for range 8 {
		got = append(got, closed(0)/time.Second)
	}
	a.Served()
	got = append(got, closed(0)/time.Second, closed(5*time.Second)/time.Second)
	if diff := cmp.Diff([]time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 1, 5}, got); diff != "" {
		t.Errorf(
			"An account should be closed longer each time, up to a minute, until a call succeeds: -want, +got:\n%s",
			diff,
		)
	}
}

func TestThrottled_TicketIsDueAtTheRecoveringRate(t *testing.T) {
	a := newAccount(&Counts{}, 10, 10)
	a.Throttled(time.Second, start(), start())
	a.Charge(10+45, start())

	// Until the first step, 6s after the start, 30 tokens. Then 16 more at 6 a second.
	wait := ask(a, Urgent, start())
	if want := 6*time.Second + 16*time.Second/6; wait < want || wait > want+time.Microsecond {
		t.Errorf("A ticket should be due when the recovering rate has paid the debt: got %s, want %s", wait, want)
	}
	a.Refund(start().Add(7 * time.Second))
	due := start().Add(wait)
	if again := ask(a, Urgent, due); again != 0 {
		t.Errorf("A reconcile should start when its ticket is due: waits %s more", again)
	}
	if got := a.available(due); math.Abs(got-1) > tolerance {
		t.Errorf("Only the token that was given back should be left: got %v", got)
	}
}

func TestThrottled_BacklogUsesTheRecoveredRate(t *testing.T) {
	cases := map[string]struct {
		reason    string
		limit     rate.Limit
		burst     int
		throttled int // calls, before the backlog arrives
		again     int // how many reconciles have started when one more call is throttled
		backlog   int
		most      time.Duration
		unordered bool
	}{
		"Limited": {
			reason:    "The backlog should start at the full rate once it is back.",
			limit:     50,
			burst:     50,
			throttled: 5,
			backlog:   2000,
			most:      80 * time.Second,
		},
		"ThrottledAgain": {
			reason:    "The backlog should start at the full rate also if it is back later than expected.",
			limit:     50,
			burst:     50,
			throttled: 5,
			again:     200,
			backlog:   2000,
			most:      100 * time.Second,
			unordered: true, // A reconcile that returns too early may take the token of another.
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAccount(&Counts{}, tc.limit, tc.burst)
			now := start()
			for range tc.throttled {
				a.Charge(tc.burst, now)
				a.Throttled(time.Second, now, now)
				now = now.Add(2 * time.Second)
			}
			q := backlog(tc.backlog, Urgent, now)
			var want, got []types.UID
			for i := range q {
				q[i].at = q[i].at.Add(time.Duration(i) * time.Microsecond)
				want = append(want, q[i].uid)
			}
			late := backlog(1, Urgent, now.Add(tc.most))[0]

			early, asked := 0, 0
			simulate(a, append(q, late), func(r arrival) {
				if r.uid == late.uid {
					if waited := r.at.Sub(r.since); waited != 0 {
						t.Errorf("\n%s\nOne after %s should start at once: waits %s", tc.reason, tc.most, waited)
					}
					return
				}
				asked += r.asked
				if r.at.Sub(now) < 10*time.Second {
					early++
				}
				if got = append(got, r.uid); len(got) == tc.again {
					a.Throttled(time.Second, r.at, r.at)
				}
			})
			if early > 50 {
				t.Errorf("\n%s\nThe rate should recover step by step: %d started in ten seconds", tc.reason, early)
			}
			if asked > 3*tc.backlog {
				t.Errorf("\n%s\nReconciles should return when their token is due: asked %d times", tc.reason, asked)
			}
			if tc.unordered {
				slices.Sort(want)
				slices.Sort(got)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("\n%s\nEach reconcile should start once, in order: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAccount_IsKept(t *testing.T) {
	as, _ := NewAccounts(10, 10)
	a := as.Account(Key{Name: "used"}, "ProviderConfig", start())
	if a != as.Account(Key{Name: "used"}, "ProviderConfig", start()) ||
		a == as.Account(Key{Name: "used", Namespace: "n"}, "ProviderConfig", start()) {
		t.Error("A key should have an account of its own.")
	}
	a.Throttled(10*time.Hour, start(), start())
	for i := range 100000 {
		now := start().Add(time.Duration(i) * time.Second / 10)
		ask(as.Account(Key{Name: fmt.Sprint(i)}, "ProviderConfig", now), Poll, now)
	}
	if n := len(as.accounts); n > 2500 {
		t.Errorf("Accounts that are not used should be forgotten: got %d", n)
	}
	if a != as.Account(Key{Name: "used"}, "ProviderConfig", start()) {
		t.Error("An account that is closed should be kept.")
	}
}

func TestAccount_IsIdleDuringALongCall(t *testing.T) {
	cases := map[string]struct {
		reason  string
		another bool // A reconcile comes before the call ends.
	}{
		"NoReconcile": {reason: "The account should be closed for the first reconcile after the call."},
		"Reconcile":   {reason: "The account of a reconcile during the call should be closed.", another: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			as, _ := NewAccounts(10, 10)
			key, began := Key{Name: "used"}, time.Now().Add(-time.Hour)
			a := as.Account(key, "ProviderConfig", began)
			ask(a, Urgent, began)
			m := &Meter{}
			m.Open(a, true)
			m.Charge()
			for i := range 200 {
				as.Account(Key{Name: fmt.Sprint(i)}, "ProviderConfig", time.Now())
			}
			if as.accounts[key] != nil {
				t.Fatal("The account should be dropped.")
			}
			if tc.another {
				a = as.Account(key, "ProviderConfig", time.Now())
				ask(a, Urgent, time.Now())
			}
			m.Ended(throttledFor(time.Hour), false)
			until := as.Account(key, "ProviderConfig", time.Now()).Closed()
			if !until.After(time.Now()) || !m.Account().Closed().Equal(until) || !a.Closed().Equal(until) {
				t.Errorf(
					"%s Got %s, by the call's meter %s, by the account of the last reconcile %s",
					tc.reason, until, m.Account().Closed(), a.Closed(),
				)
			}
		})
	}
}

func TestAccount_IsForgottenWithoutItsReconciles(t *testing.T) {
	as, _ := NewAccounts(1, 1)
	for i := range 100000 {
		now := start().Add(time.Duration(i) * time.Second / 10)
		a := as.Account(Key{Name: fmt.Sprint(i)}, "ProviderConfig", now)
		ask(a, Poll, now)
		if ask(a, Poll, now) == 0 {
			t.Fatal("The second reconcile should wait for a token.")
		}
	}
	if n := len(as.accounts); n > 2500 {
		t.Errorf("An account should be forgotten although a reconcile that waited did not return: got %d", n)
	}
}

func TestSpread(t *testing.T) {
	as, _ := NewAccounts(10, 10)
	as.Spread("first", time.Minute, start())
	var parts [6]int
	for i := range 6000 {
		uid := types.UID(fmt.Sprint(i))
		wait := as.Spread(uid, time.Minute, start())
		parts[min(int(wait/(10*time.Second)), 5)]++
		if got := as.Spread(uid, time.Minute, start().Add(wait)); got != 0 {
			t.Fatalf("A poll should start when its time has come: waits %s more", got)
		}
	}
	for _, n := range parts {
		if n < 850 || n > 1150 {
			t.Errorf("Polls should be spread over the poll interval: got %v", parts)
		}
	}
	if got := as.Spread("late", time.Minute, start().Add(time.Minute)); got != 0 {
		t.Errorf("Polls should not wait after the first poll interval: got %s", got)
	}
}

// The accounts are of one process each: a crash test leads the same life in several.
func TestSpread_IsTheSameInEachProcess(t *testing.T) {
	var waits [2]time.Duration
	for i := range waits {
		as, _ := NewAccounts(10, 10)
		waits[i] = as.Spread("1c6a4ad2-9bd4-4b46-8c5e-c5fc6ccb8d0d", time.Hour, start())
	}
	if waits[0] != waits[1] {
		t.Errorf("A managed resource should wait as long after each start: got %v", waits)
	}
}

func BenchmarkAdmit(b *testing.B) {
	as, _ := NewAccounts(1e9, 1e9)
	k := Key{Kind: "ProviderConfig", Name: "default"}
	b.ReportAllocs()
	for b.Loop() {
		now := time.Now()
		a := as.Account(k, "ProviderConfig", now)
		if as.Spread("1c6a4ad2-9bd4-4b46-8c5e-c5fc6ccb8d0d", time.Minute, now) > time.Hour ||
			ask(a, Poll, now) > 0 {
			b.Fatal("it has to wait")
		}
	}
}
