package baseline

import "sync"

// A Lock is what a sync.RWMutex is to its users.
type Lock interface {
	Lock()
	Unlock()
	RLock()
	RUnlock()
}

// A WaitLock is a lock for readers and writers that behaves as sync.RWMutex
// does: a writer that waits keeps new readers out. Those who wait for it do so on
// a channel. A testing/synctest bubble takes a goroutine that waits for a
// sync.RWMutex to be busy, and lets no time pass; with this lock it measures how
// long the wait is.
type WaitLock struct {
	mu      sync.Mutex
	readers int
	writing bool
	queue   []waiter
}

type waiter struct {
	write bool
	turn  chan struct{}
}

func (l *WaitLock) acquire(write bool) {
	w := waiter{write: write, turn: make(chan struct{})}
	l.mu.Lock()
	l.queue = append(l.queue, w)
	l.next()
	l.mu.Unlock()
	<-w.turn
}

// next lets those in whose turn it is.
func (l *WaitLock) next() {
	for len(l.queue) > 0 && !l.writing && (!l.queue[0].write || l.readers == 0) {
		w := l.queue[0]
		l.queue = l.queue[1:]
		if l.writing = w.write; !w.write {
			l.readers++
		}
		close(w.turn)
	}
}

// Lock for writing.
func (l *WaitLock) Lock() { l.acquire(true) }

// RLock locks for reading.
func (l *WaitLock) RLock() { l.acquire(false) }

// Unlock what was locked for writing.
func (l *WaitLock) Unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = false
	l.next()
}

// RUnlock what was locked for reading.
func (l *WaitLock) RUnlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers--
	l.next()
}
