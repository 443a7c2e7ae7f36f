package limit

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// A Key identifies an account: a provider config, or a name that a provider gives it.
type Key struct {
	Kind, Namespace, Name string

	// Account is the name that a provider gives the account. The other fields are empty then.
	Account string
}

// Accounts are the accounts of an external system. They are safe for concurrent use.
type Accounts struct {
	limit rate.Limit
	burst int

	mu       sync.Mutex
	accounts map[Key]*Account
	counts   map[string]*Counts
	swept    int       // how many of them were left by the last sweep
	started  time.Time // when the first reconcile came
}

// NewAccounts returns accounts that each allow perSecond calls a second, and burst calls at
// once. It returns an error if one of the numbers cannot be used.
func NewAccounts(perSecond float64, burst int) (*Accounts, error) {
	switch {
	case math.IsNaN(perSecond) || math.IsInf(perSecond, 0) || perSecond <= 0:
		return nil, errors.Errorf("the rate is %v calls a second: pass a finite number greater than 0", perSecond)
	case burst <= 0:
		return nil, errors.Errorf("the burst is %d: pass how many calls may be made at once, 1 or more", burst)
	}
	return &Accounts{limit: rate.Limit(perSecond), burst: burst}, nil
}

// Account returns the account of a key. The kind is its label in metrics.
func (as *Accounts) Account(k Key, kind string, now time.Time) *Account {
	as.mu.Lock()
	defer as.mu.Unlock()
	if a, ok := as.accounts[k]; ok {
		return a
	}
	if as.accounts == nil {
		as.accounts = map[Key]*Account{}
	}

	const few = 100
	if len(as.accounts) >= few+2*as.swept {
		for k, a := range as.accounts {
			if a.idle(now) {
				delete(as.accounts, k)
			}
		}
		as.swept = len(as.accounts)
	}

	a := newAccount(as.countsOf(kind), as.limit, as.burst)
	a.accounts, a.key = as, k
	as.accounts[k] = a
	return a
}

// current returns the account that reconciles use instead of a, which was dropped if it was idle
// during a long call. Without another one, they use a again.
func (as *Accounts) current(a *Account) *Account {
	as.mu.Lock()
	defer as.mu.Unlock()
	if now, ok := as.accounts[a.key]; ok {
		return now
	}
	as.accounts[a.key] = a
	return a
}

// Spread returns how long the first poll of an object waits, so that the polls after a
// start are spread over the poll interval. It is zero later.
func (as *Accounts) Spread(uid types.UID, pollInterval time.Duration, now time.Time) time.Duration {
	if pollInterval <= 0 {
		return 0
	}
	as.mu.Lock()
	if as.started.IsZero() {
		as.started = now
	}
	due := as.started
	as.mu.Unlock()
	if now.Sub(due) >= pollInterval {
		return 0
	}

	// The hash has no seed, because a test that leads the same life again needs the same wait.
	sum := sha256.Sum256([]byte(uid))
	part := float64(binary.BigEndian.Uint64(sum[:])) / math.MaxUint64
	return max(0, due.Add(time.Duration(part*float64(pollInterval))).Sub(now))
}

// Counts returns the counts of a kind of provider config.
func (as *Accounts) Counts(kind string) *Counts {
	as.mu.Lock()
	defer as.mu.Unlock()
	return as.countsOf(kind)
}

func (as *Accounts) countsOf(kind string) *Counts {
	c, ok := as.counts[kind]
	if !ok {
		c = &Counts{}
		if as.counts == nil {
			as.counts = map[string]*Counts{}
		}
		as.counts[kind] = c
	}
	return c
}

// Tokens returns the tokens of the account of a kind that has fewest. It is false if the
// kind has no account.
func (as *Accounts) Tokens(kind string, now time.Time) (fewest float64, found bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	counts := as.countsOf(kind)
	for _, a := range as.accounts {
		if a.counts != counts {
			continue
		}
		if n := a.available(now); !found || n < fewest {
			fewest, found = n, true
		}
	}
	return fewest, found
}
