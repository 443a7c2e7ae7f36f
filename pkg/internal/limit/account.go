package limit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// A Class says how urgent a reconcile is. Lower classes come first.
type Class int

const (
	// Urgent is for new deletions, new and changed specs, and requested reconciles.
	Urgent Class = iota

	// Settling is for managed resources that are not Ready yet, and have no error or were
	// throttled, for deletions that were tried before, and for the retry after a repair of the
	// account.
	Settling

	// Poll is for all others. Those that fail must not hold up those that are Ready.
	Poll

	classes
)

const (
	// reserved is the share of the bucket that polls leave to the other classes.
	reserved = 0.2

	// maxPassed is how many other reconciles may start before one of a class that waits does.
	maxPassed = 5

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

	// An account is broken after this many failed calls in a row and this long without a
	// successful one, for example because its credentials have expired. When calls succeed
	// again, the failed reconciles come before polls for a while. In an account that works,
	// managed resources that fail get many failures in a row, but not for long.
	manyFailures = 5
	brokenTime   = time.Minute
	repairTime   = 5 * time.Minute

	// forgotten is how long a reconcile keeps its place after its token is due, if it does
	// not return.
	forgotten = time.Minute
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

	// tail is the time at which the next new reconcile of each class is due. head is the time
	// for the next reconcile that has waited and found its token spent.
	tail, head [classes]time.Time

	// starts counts the reconciles that have started. served has the count at which a reconcile
	// of each class last started, or got the priority of Urgent. It does not count tokens or
	// time: one reconcile may take many tokens, and one with that priority may still wait.
	starts int
	served [classes]int

	// waiting has the ticket of each reconcile that waits for a token, by the object's UID.
	// waits is their number for each class.
	waiting map[types.UID]ticket
	waits   [classes]int
	swept   int // how many of them were left by the last sweep

	// peak is the rate before the throttling, changed when the rate last changed, and halved
	// when a throttled call last halved it.
	peak            rate.Limit
	changed, halved time.Time

	used time.Time

	// failures are the calls in a row that have failed, succeeded is when one last succeeded,
	// and repaired is when one succeeded in a broken account.
	failures            int
	succeeded, repaired time.Time
}

// Counts has the counters of all accounts of one kind of provider config.
type Counts struct {
	Limited   atomic.Uint64 // reconciles that had to wait for a token
	Throttled atomic.Uint64 // calls that the external system throttled
}

// A ticket says when the token of a waiting reconcile is due.
type ticket struct {
	class Class
	due   time.Time
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

// Admit takes a token for a reconcile of the object and returns zero: the reconcile may start.
// Without a token it returns the time until one is due for the reconcile.
//
// A reconcile that returns when its token is due starts before newer reconciles of its class,
// but after more urgent ones. When five of other classes have started, one of its class is
// next. Call Leave for one that does not return.
func (a *Account) Admit(uid types.UID, c Class, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = now
	a.recover(now)

	t, waited := a.waiting[uid]
	if waited {
		// A reconcile does not wait for its own token.
		a.waits[t.class]--
	}
	waited = waited && t.class <= c
	if waited {
		c = t.class
	}
	early := waited && t.due.After(now)
	returned := waited && !early

	due := a.due(c, now, returned)
	if returned && due.After(now) && !a.closed.After(now) && a.starts-a.served[c] >= maxPassed {
		// More urgent reconciles must not hold up the others for ever.
		a.served[c] = a.starts
		c = Urgent
		due = a.due(c, now, returned)
	}
	switch {
	case early && !due.Before(t.due):
		a.waits[c]++
		return t.due.Sub(now)
	case !due.After(now):
		a.forget(uid)
		a.take(1, now)
		a.starts++
		a.served[c] = a.starts
		return 0
	case returned:
		due = later(due, a.end(a.head[c], c, now))
		a.head[c] = a.after(1, due)
		// Its new place is one that others have. If the end did not move, new reconciles would get all
		// tokens, and one of those that wait would lose each of its own.
		a.tail[c] = later(a.after(1, a.tail[c]), a.head[c])
	default:
		a.tail[c] = a.after(1, due)
	}

	if !early {
		a.counts.Limited.Add(1)
	}
	a.wait(uid, ticket{class: c, due: due}, now)
	return due.Sub(now)
}

// due returns when a reconcile of a class may start. returned reports whether it has waited
// until its token was due.
func (a *Account) due(c Class, now time.Time, returned bool) time.Time {
	due := a.free(c, now)
	for more := Urgent; more < c; more++ {
		due = later(due, a.end(a.tail[more], more, now))
	}
	if !returned {
		due = later(due, a.end(a.tail[c], c, now))
	}
	return due
}

// end returns the time at, which is the tail or the head of a class, or an earlier one if fewer
// reconciles wait than the time allows for: nothing uses the tokens of those that have left.
func (a *Account) end(at time.Time, c Class, now time.Time) time.Time {
	if !at.After(now) {
		return at
	}
	before := 0
	for more := Urgent; more <= c; more++ {
		before += a.waits[more]
	}
	if sooner := a.after(float64(before), a.free(c, now)); sooner.Before(at) {
		return sooner
	}
	return at
}

// free returns when the bucket has a token for a class, if no other reconcile takes it.
func (a *Account) free(c Class, now time.Time) time.Time {
	free := later(now, a.closed)
	if missing := a.floor(c) + 1 - a.bucket.TokensAt(now); missing > tolerance {
		free = later(free, a.after(missing, now))
	}
	return free
}

// floor returns how many tokens a class leaves in the bucket.
func (a *Account) floor(c Class) float64 {
	burst := float64(a.bucket.Burst())
	most := min(math.Floor(burst*reserved), burst-1)
	switch c {
	case Poll:
		return most
	case Settling:
		return math.Floor(most / 2)
	default:
		return 0
	}
}

// after returns when the bucket has got that many tokens, counted from the time at. It expects
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
	wait := min(math.Ceil(tokens/float64(limit)*float64(time.Second)), float64(maxClosed))
	return at.Add(time.Duration(wait))
}

// wait records when the token of a reconcile is due. Reconciles that did not return lose
// their place.
func (a *Account) wait(uid types.UID, t ticket, now time.Time) {
	if a.waiting == nil {
		a.waiting = map[types.UID]ticket{}
	}
	a.waiting[uid] = t
	a.waits[t.class]++
	const few = 100
	if len(a.waiting) > few+2*a.swept {
		a.sweep(now)
	}
}

// sweep drops the places of reconciles that did not return.
func (a *Account) sweep(now time.Time) {
	for uid, t := range a.waiting {
		if now.Sub(t.due) > forgotten {
			delete(a.waiting, uid)
			a.waits[t.class]--
		}
	}
	a.swept = len(a.waiting)
}

// forget drops the ticket of a reconcile. A map does not shrink by itself.
func (a *Account) forget(uid types.UID) {
	if delete(a.waiting, uid); len(a.waiting) == 0 {
		a.waiting, a.swept = nil, 0
	}
}

// Leave gives up the place of a reconcile that no longer waits for a token of the account.
func (a *Account) Leave(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t, ok := a.waiting[uid]; ok {
		a.waits[t.class]--
		a.forget(uid)
	}
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

// Reached records whether a call that every reconcile makes has succeeded. failing is the time
// since which the reconciles of its object fail, or zero.
func (a *Account) Reached(ok bool, failing, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !ok {
		// An object that has failed since before the last repair does not fail because of the
		// account. While many of those are retried, no other call may succeed.
		if failing.IsZero() || !failing.Before(a.repaired) {
			a.failures++
		}
		return
	}
	if a.failures >= manyFailures && now.Sub(a.succeeded) >= brokenTime {
		a.repaired = now
	}
	a.failures, a.succeeded = 0, now
}

// Repaired reports whether the account was broken at the time at, and has worked again only
// for a short time.
func (a *Account) Repaired(at, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return at.Before(a.repaired) && now.Sub(a.repaired) < repairTime
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

// tokens returns how many calls may be made at once.
func (a *Account) tokens(now time.Time) float64 {
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
	a.sweep(now)
	return now.Sub(a.used) > maxDebt && !a.closed.After(now) && a.peak == 0 && len(a.waiting) == 0 &&
		a.bucket.TokensAt(now) >= float64(a.bucket.Burst())
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
