package watch_test

import "sync"

// A rwLock is what a sync.RWMutex is to its users.
type rwLock interface {
	Lock()
	Unlock()
	RLock()
	RUnlock()
}

// A waitLock is a lock for readers and writers that behaves as sync.RWMutex
// does: a writer that waits keeps new readers out. Those who wait for it do so on
// a channel. A testing/synctest bubble takes a goroutine that waits for a
// sync.RWMutex to be busy, and lets no time pass; with this lock it measures how
// long the wait is.
type waitLock struct {
	mu      sync.Mutex
	readers int
	writing bool
	queue   []lockWaiter
}

type lockWaiter struct {
	write bool
	turn  chan struct{}
}

func (l *waitLock) acquire(write bool) {
	w := lockWaiter{write: write, turn: make(chan struct{})}
	l.mu.Lock()
	l.queue = append(l.queue, w)
	l.next()
	l.mu.Unlock()
	<-w.turn
}

// next lets those in whose turn it is.
func (l *waitLock) next() {
	for len(l.queue) > 0 && !l.writing && (!l.queue[0].write || l.readers == 0) {
		w := l.queue[0]
		l.queue = l.queue[1:]
		if l.writing = w.write; !w.write {
			l.readers++
		}
		close(w.turn)
	}
}

func (l *waitLock) Lock()  { l.acquire(true) }
func (l *waitLock) RLock() { l.acquire(false) }

func (l *waitLock) Unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = false
	l.next()
}

func (l *waitLock) RUnlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers--
	l.next()
}
