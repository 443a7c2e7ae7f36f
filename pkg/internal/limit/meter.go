package limit

import (
	"sync"
	"time"
)

// A Meter charges the calls of one reconcile, and of the operations that it began, to an
// account. The zero Meter charges nothing. It is safe for concurrent use, and a nil Meter
// is a zero one.
type Meter struct {
	mu      sync.Mutex
	account *Account
	prepaid bool
	judged  func(v Verdict, err error, until time.Time)
}

// Open charges later calls to an account. A reconcile that the account has admitted has paid
// for one call.
func (m *Meter) Open(a *Account, prepaid bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account, m.prepaid = a, prepaid
}

// Account returns the account, or nil if there is none.
func (m *Meter) Account() *Account {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.account
}

// OnJudged sets what is called with each error of a call that is throttled or terminal, and
// with the time until which the account is then closed.
func (m *Meter) OnJudged(fn func(v Verdict, err error, until time.Time)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judged = fn
}

// Charge the account for n calls. The first call of a reconcile is paid for.
func (m *Meter) Charge(n int) {
	a := m.Account()
	if a == nil || n <= 0 {
		return
	}
	m.mu.Lock()
	if m.prepaid {
		m.prepaid = false
		n--
	}
	m.mu.Unlock()
	if n > 0 {
		a.Charge(n, time.Now())
	}
}

// Returned judges the error of a call. It closes the account if the call was throttled.
func (m *Meter) Returned(err error) {
	a := m.Account()
	if a == nil || err == nil {
		return
	}
	now := time.Now()
	v := Judge(err, now)
	if !v.Throttled && !v.Terminal {
		return
	}
	until := now
	if v.Throttled {
		until = a.Throttled(v.After, now)
	}
	m.mu.Lock()
	judged := m.judged
	m.mu.Unlock()
	if judged != nil {
		judged(v, err, until)
	}
}

// Close returns the token of a reconcile that made no call.
func (m *Meter) Close() {
	m.mu.Lock()
	a, prepaid := m.account, m.prepaid
	m.prepaid = false
	m.mu.Unlock()
	if prepaid && a != nil {
		a.Refund(time.Now())
	}
}
