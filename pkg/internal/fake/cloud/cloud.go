package cloud

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options configure a Cloud. The zero value is a cloud without latency whose
// resources are there at once and go at once.
type Options struct {
	// Clock to use. A RealClock if nil.
	Clock Clock

	// Seed of the ids. With zero they count: "db-0001", "db-0002". With any other
	// value each carries a suffix made from it, so that two clouds don't share
	// ids: "db-0001-9f3a". The same seed gives the same ids.
	Seed uint64

	// IDPrefixes of ids by kind. The kind in lower case where there is none.
	IDPrefixes map[string]string

	// Token that NewSession asks for. No token is asked for if it's empty.
	Token string

	// RequestLatency passes before an operation takes effect. A call whose
	// context ends meanwhile changes nothing.
	RequestLatency time.Duration

	// ResponseLatency passes after an operation took effect. A call whose context
	// ends meanwhile has changed the cloud and doesn't learn what.
	ResponseLatency time.Duration

	// VisibleAfter is how long a new resource is hidden from Get and List.
	VisibleAfter time.Duration

	// ReadyAfter is how long a new resource is in state creating.
	ReadyAfter time.Duration

	// GoneAfter is how long a resource is in state deleting after Delete.
	GoneAfter time.Duration

	// Defaults are properties that every new resource gets unless the request
	// gives them.
	Defaults map[string]string
}

// A Cloud holds resources. It is safe for concurrent use.
type Cloud struct {
	opts  Options
	clock Clock

	mu        sync.Mutex
	rand      *rand.Rand
	token     string
	hooks     Hooks
	counts    Counts
	sequence  map[string]int
	resources map[string]*record
	deleting  int // How many of them are being deleted.
	stats     map[string]Stats
}

// Stats tells about the resources of one owner.
type Stats struct {
	// Existing is how many resources there are now, in any state.
	Existing int

	// Created is how many have ever been created.
	Created int
}

// New returns an empty cloud.
func New(o Options) *Cloud {
	o.IDPrefixes = maps.Clone(o.IDPrefixes)
	o.Defaults = maps.Clone(o.Defaults)
	clock := o.Clock
	if clock == nil {
		clock = RealClock{}
	}
	return &Cloud{
		opts:      o,
		clock:     clock,
		rand:      rand.New(rand.NewPCG(o.Seed, o.Seed)), //nolint:gosec // Ids have to be the same for the same seed.
		token:     o.Token,
		counts:    Counts{},
		sequence:  map[string]int{},
		resources: map[string]*record{},
		stats:     map[string]Stats{},
	}
}

// Inventory returns every resource that exists, in order of its id: hidden ones
// and those that are being deleted too.
func (c *Cloud) Inventory() []Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collect()
	return c.list(func(*record) bool { return true })
}

// Stats returns what the cloud knows about an owner.
func (c *Cloud) Stats(owner string) Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collect()
	return c.stats[owner]
}

// call runs one operation: it counts it, lets the latencies pass and runs the
// hooks around its effect. The effect runs with the lock held and may put the
// id that it assigned into the call.
func (c *Cloud) call(ctx context.Context, call Call, token string, effect func(*Call) error) error {
	c.mu.Lock()
	c.counts[call.Op]++
	hooks := c.hooks
	c.mu.Unlock()
	fail := func(err error) error {
		return fmt.Errorf(
			"cloud: cannot %s: %w", strings.TrimSpace(strings.ToLower(string(call.Op))+" "+cmp.Or(call.ID, call.Kind)),
			err,
		)
	}

	if err := c.clock.Sleep(ctx, c.opts.RequestLatency); err != nil {
		return fail(err)
	}
	if err := hooks.Before.run(ctx, call); err != nil {
		return fail(err)
	}

	// Not the call itself: the hook may let it take effect after this returned.
	did := call
	if err := hooks.Around.run(ctx, call, func() error { return c.apply(&did, token, effect) }); err != nil {
		return fail(err)
	}
	call = did
	if err := c.clock.Sleep(ctx, c.opts.ResponseLatency); err != nil {
		return fail(err)
	}
	if err := hooks.After.run(ctx, call); err != nil {
		return fail(err)
	}
	return nil
}

func (c *Cloud) apply(call *Call, token string, effect func(*Call) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" && c.token != token {
		return ErrUnauthenticated
	}
	c.collect()
	return effect(call)
}

// The methods below need the lock.

// collect forgets the resources whose deletion is over.
func (c *Cloud) collect() {
	if c.deleting == 0 {
		return
	}
	now := c.clock.Now()

	for id, r := range c.resources {
		if !r.deleting || now.Before(r.deletedAt.Add(c.opts.GoneAfter)) {
			continue
		}
		delete(c.resources, id)
		c.deleting--
		s := c.stats[r.Owner]
		s.Existing--
		c.stats[r.Owner] = s
	}
}

func (c *Cloud) visible(r *record) bool {
	return r.deleting || !c.clock.Now().Before(r.CreatedAt.Add(c.opts.VisibleAfter))
}

func (c *Cloud) state(r *record) State {
	switch {
	case r.deleting:
		return StateDeleting
	case c.clock.Now().Before(r.CreatedAt.Add(c.opts.ReadyAfter)):
		return StateCreating
	default:
		return StateAvailable
	}
}

func (c *Cloud) list(match func(*record) bool) []Resource {
	out := make([]Resource, 0, len(c.resources))
	for _, id := range slices.Sorted(maps.Keys(c.resources)) {
		if r := c.resources[id]; match(r) {
			out = append(out, r.snapshot(c.state(r)))
		}
	}
	return out
}

func (c *Cloud) byToken(token string) *record {
	if token == "" {
		return nil
	}
	for _, r := range c.resources {
		if r.request.Token == token {
			return r
		}
	}
	return nil
}

func (c *Cloud) nextID(kind string) string {
	for {
		c.sequence[kind]++
		id := fmt.Sprintf("%s-%04d", cmp.Or(c.opts.IDPrefixes[kind], strings.ToLower(kind)), c.sequence[kind])
		if c.opts.Seed != 0 {
			id = fmt.Sprintf("%s-%04x", id, c.rand.IntN(1<<16))
		}

		// A caller may have chosen this id for a resource.
		if _, taken := c.resources[id]; !taken {
			return id
		}
	}
}
