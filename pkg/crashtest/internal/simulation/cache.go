package simulation

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A staleCache has the managed resources that a process reads while its cache lags. It is safe for concurrent use.
type staleCache struct {
	mu     sync.Mutex
	frozen map[client.ObjectKey]client.Object
	until  time.Time
	late   map[client.ObjectKey]bool
}

func newStaleCache() *staleCache { return &staleCache{late: map[client.ObjectKey]bool{}} }

// freeze the cache with these objects.
func (c *staleCache) freeze(objects map[client.ObjectKey]client.Object, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen, c.until = objects, until
}

// thaws returns when the cache no longer lags, or the zero time.
func (c *staleCache) thaws() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until
}

// thaw the cache. It returns the keys whose events it missed.
func (c *staleCache) thaw() (missed []client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.late {
		missed = append(missed, key)
	}
	c.frozen, c.until, c.late = nil, time.Time{}, map[client.ObjectKey]bool{}
	return missed
}

// missed reports whether the cache lags, and notes an event that it misses then.
func (c *staleCache) missed(key client.ObjectKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.until.IsZero() {
		c.late[key] = true
	}
	return !c.until.IsZero()
}

// get returns an object as a process reads it while its cache lags.
func (c *staleCache) get(key client.ObjectKey) (o client.Object, lags bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frozen[key], !c.until.IsZero()
}
