package limit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// tolerance is how many tokens may be missing, because durations are rounded.
	tolerance = 1e-3

	// minClosed is the shortest time that an account is closed, maxClosed the longest. If the external
	// system does not say until when, the time doubles from minClosed to maxGuess until a call succeeds.
	minClosed = time.Second
	maxGuess  = time.Minute
	maxClosed = 24 * time.Hour

	// The rate recovers in steps of a tenth of the rate before the throttling.
	recoveryInterval = 5 * time.Second
	recoverySteps    = 10

	// minShare is the lowest share of the rate that throttling leaves.
	minShare = 1.0 / 32

	// maxDebt is how long an account may be in debt because of calls that did not wait.
	maxDebt = time.Minute
)

// An Account is the token bucket of one account of the external system. It is safe for
// concurrent use.
type Account struct {
	accounts *Accounts // nil if it is alone
	key      Key
	counts   *Counts

	mu     sync.Mutex
	bucket *rate.Limiter
	limit  rate.Limit // without throttling
	closed time.Time  // until then

	// guess is how long the account was last closed without a time by the external system, and zero
	// once a call has succeeded.
	guess time.Duration

	waiting schedule

	// peak is the rate before the throttling, changed when the rate last changed, and halved
	// when a throttled call last halved it.
	peak            rate.Limit
	changed, halved time.Time

	used time.Time
}

// Counts has the counters of all accounts of one kind of provider config.
type Counts struct {
	Limited   atomic.Uint64 // reconciles that had to wait for a token
	Throttled atomic.Uint64 // calls that the external system throttled
}

func newAccount(c *Counts, limit rate.Limit, burst int) *Account {
	return &Account{counts: c, limit: limit, bucket: rate.NewLimiter(limit, burst)}
}

// Key returns the key of the account. It is the zero Key without an account.
func (a *Account) Key() Key {
	if a == nil {
		return Key{}
	}
	return a.key
}

// Admit takes a token for a reconcile and returns zero: the reconcile may start. Without a token it returns the
// reconcile's place in the schedule, and the time until its turn. p is the place that Admit has returned to an earlier
// reconcile of the object, or nil. Call Leave if the object no longer waits for the account.
//
// A reconcile leaves a token for each one before it in the schedule that is due before the next token. If one of those
// does not return in time, its token is for any.
func (a *Account) Admit(p *Place, c Class, now time.Time) (*Place, time.Duration) {
	if p != nil && p.account != a {
		p.Leave()
		p = nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = now
	a.recover(now)
	a.waiting.forget(now)

	if p == nil || !a.waiting.has(p) || p.class != c {
		a.waiting.leave(p)
		p = &Place{account: a, class: c, turn: a.waiting.next(c)}
	}
	missed := now.Add(-late) // Those due before don't count, because their tokens are for any.
	needed := float64(a.waiting.due(p, missed, a.after(1, now))+1) - tolerance
	if !a.closed.After(now) && a.bucket.TokensAt(now) >= needed {
		a.waiting.start(p)
		a.take(1, now)
		return nil, 0
	}
	if !p.due.After(now) {
		a.counts.Limited.Add(1)
	}
	opens := later(now, a.closed)
	before := a.waiting.before(p) - a.waiting.due(p, time.Time{}, missed)
	p.due = a.after(float64(before+1)-a.bucket.TokensAt(opens), opens)
	a.waiting.join(p)
	return p, p.due.Sub(now)
}

// Leave gives up the place. A nil place is none.
func (p *Place) Leave() {
	if p == nil {
		return
	}
	p.account.mu.Lock()
	defer p.account.mu.Unlock()
	p.account.waiting.leave(p)
}

// after returns when the bucket has got that many more tokens, counted from the time at. It expects
// the rate to recover, because a reconcile that waits does not learn of a higher rate. If the
// rate is halved again, the reconcile returns too early and waits a second time.
func (a *Account) after(tokens float64, at time.Time) time.Time {
	limit, changes := a.bucket.Limit(), a.changed
	for a.peak != 0 && limit != a.limit {
		changes = changes.Add(recoveryInterval)
		got := float64(limit) * max(changes.Sub(at), 0).Seconds()
		if got >= tokens {
			break
		}
		tokens -= got
		at, limit = later(at, changes), a.raised(limit)
	}
	// Round up, because a reconcile that returns too early waits a second time.
	wait := min(math.Ceil(max(tokens, 0)/float64(limit)*float64(time.Second)), float64(maxClosed))
	return at.Add(time.Duration(wait))
}

// Charge takes tokens for calls that cannot wait. Later reconciles wait for them.
func (a *Account) Charge(n int, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.recover(now)
	a.take(n, now)
}

// Refund returns a token to the bucket. Call it for a token whose call was not made.
func (a *Account) Refund(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.recover(now)
	a.bucket.ReserveN(now, -1)
}

func (a *Account) take(n int, now time.Time) {
	a.used = now
	lowest := -float64(a.bucket.Limit()) * maxDebt.Seconds()
	n = int(min(float64(n), math.Ceil(a.bucket.TokensAt(now)-lowest)))
	for n > 0 {
		part := min(n, a.bucket.Burst())
		a.bucket.ReserveN(now, part)
		n -= part
	}
}

// Throttled closes the account for the duration after. If after is zero, that is a second, and twice as
// long each time, up to a minute, until Served is called. It halves the rate, once for all calls that
// started before the account was closed, however late their answers are. It returns the time at which the
// account opens.
func (a *Account) Throttled(after time.Duration, started, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts.Throttled.Add(1)
	a.recover(now)
	a.used = now
	counted := a.closed.After(now) || started.Before(a.halved)
	if after <= 0 && !counted {
		a.guess = min(max(2*a.guess, minClosed), maxGuess)
	}
	if after <= 0 {
		after = a.guess
	}
	a.closed = later(a.closed, now.Add(min(max(after, minClosed), maxClosed)))
	if counted {
		a.changed = a.closed
		return a.closed
	}
	a.halved = now

	a.peak = a.limit
	a.bucket.SetLimitAt(now, max(a.bucket.Limit()/2, a.peak*minShare))
	a.changed = a.closed
	return a.closed
}

// Served records that a call has succeeded.
func (a *Account) Served() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.guess = 0
}

// recover raises the rate after it was halved. Each step counts from its own time, also if no
// call was made then: after expects the same.
func (a *Account) recover(now time.Time) {
	for a.peak != 0 && now.Sub(a.changed) >= recoveryInterval {
		a.changed = a.changed.Add(recoveryInterval)
		limit := a.raised(a.bucket.Limit())
		a.bucket.SetLimitAt(a.changed, limit)
		if limit == a.limit {
			a.peak = 0
		}
	}
}

// raised returns the rate one step after limit.
func (a *Account) raised(limit rate.Limit) rate.Limit {
	if limit += a.peak / recoverySteps; limit < a.peak {
		return limit
	}
	return a.limit
}

// Closed returns the time at which the account opens. The account is open if that is the zero
// time or in the past.
func (a *Account) Closed() time.Time {
	if a == nil {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// available returns how many calls may be made at once.
func (a *Account) available(now time.Time) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed.After(now) {
		return 0
	}
	return a.bucket.TokensAt(now)
}

// idle reports whether the account is as a new one would be.
func (a *Account) idle(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.recover(now)
	a.waiting.forget(now)
	return now.Sub(a.used) > maxDebt && !a.closed.After(now) && a.peak == 0 && a.waiting.empty() &&
		a.bucket.TokensAt(now) >= float64(a.bucket.Burst())
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
