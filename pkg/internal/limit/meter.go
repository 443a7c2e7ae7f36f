package limit

import (
	"sync"
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/failure"
)

// A Meter charges the calls of one reconcile, and of the operations that it started, to an
// account. The zero Meter charges nothing, and a nil Meter is a zero Meter. A Meter is safe
// for concurrent use.
type Meter struct {
	mu      sync.Mutex
	account *Account
	prepaid bool
	started time.Time // of the last call
	onError func(m failure.Meaning, err error)
}

// Open charges later calls to the account. If the account has admitted the reconcile, the
// first call is already paid for.
func (m *Meter) Open(a *Account, prepaid bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account, m.prepaid, m.started = a, prepaid, time.Now()
}

// Account returns the account, or nil if there is none.
func (m *Meter) Account() *Account {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.currentAccount()
}

func (m *Meter) currentAccount() *Account {
	if m.account != nil && m.account.accounts != nil {
		m.account = m.account.accounts.current(m.account)
	}
	return m.account
}

// OnError sets the function that is called with the error of a later Create or Update, if
// that error is throttled or terminal.
func (m *Meter) OnError(fn func(of failure.Meaning, err error)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onError = fn
}

// Charge charges the account for a call. The first call of an admitted reconcile is free.
func (m *Meter) Charge() {
	if m == nil {
		return
	}
	now := time.Now()
	m.mu.Lock()
	a, prepaid := m.currentAccount(), m.prepaid
	m.prepaid, m.started = false, now
	m.mu.Unlock()
	if a != nil && !prepaid {
		a.Charge(1, now)
	}
}

// ChargeMore charges the account for n additional calls.
func (m *Meter) ChargeMore(n int) {
	if a := m.Account(); a != nil && n > 0 {
		a.Charge(n, time.Now())
	}
}

// Returned closes the account if err, the error of a call or nil, says that the call was throttled. The
// text of an error, which may quote a user, does not close it.
func (m *Meter) Returned(err error) { m.returned(err, nil) }

func (m *Meter) returned(err error, then func(of failure.Meaning, err error)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	a, started := m.currentAccount(), m.started
	m.mu.Unlock()
	if a == nil {
		return
	}
	now := time.Now()
	of := failure.Of(err, now)
	switch {
	case err == nil:
		a.Served()
	case of.Throttled && of.Evidence >= failure.Typed:
		a.Throttled(of.After, started, now)
	}
	if then != nil && (of.Throttled || of.Terminal) {
		then(of, err)
	}
}

// Call makes a call whose error is not kept: Connect, Observe or Delete.
func Call[T any](m *Meter, call func() (T, error)) (T, error) {
	m.Charge()
	t, err := call()
	m.Returned(err)
	return t, err
}

// CallKeepingError makes a call of Create or Update.
func CallKeepingError[T any](m *Meter, call func() (T, error)) (T, error) {
	m.Charge()
	t, err := call()
	m.Ended(err, true)
	return t, err
}

// Ended judges the error of an operation. The error is kept if the operation is a create or
// an update.
func (m *Meter) Ended(err error, remember bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	then := m.onError
	m.mu.Unlock()
	if !remember {
		then = nil
	}
	m.returned(err, then)
}

// Close returns the token of a reconcile that made no call.
func (m *Meter) Close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	a, prepaid := m.currentAccount(), m.prepaid
	m.prepaid = false
	m.mu.Unlock()
	if prepaid && a != nil {
		a.Refund(time.Now())
	}
}
