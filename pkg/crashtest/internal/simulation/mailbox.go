package simulation

import (
	"sync"
	"time"
)

// A mailbox has the work that other goroutines give to the one that runs the simulation.
type mailbox struct {
	mu     sync.Mutex
	posted []func()
	woken  chan struct{}
}

// post work. Work of several goroutines has no order.
func (m *mailbox) post(fn func()) {
	m.mu.Lock()
	m.posted = append(m.posted, fn)
	m.mu.Unlock()
	select {
	case m.woken <- struct{}{}:
	default:
	}
}

// empty does the posted work.
func (m *mailbox) empty() {
	m.mu.Lock()
	posted := m.posted
	m.posted = nil
	m.mu.Unlock()
	for _, fn := range posted {
		fn()
	}
}

// sleep for a while, or until work is posted.
func (m *mailbox) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-m.woken:
	case <-timer.C:
	}
}
