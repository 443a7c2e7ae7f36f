package asyncstate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A fakeCloud gives names of its own to what it makes, unless it is told one.
type fakeCloud struct {
	mu sync.Mutex

	// takes is how long the cloud works on a request, half of it before anything
	// is done.
	takes time.Duration

	// refuse is asked before anything is done about a request.
	refuse func(verb asyncstate.Type) error

	// lose is asked when a create has been done: its error goes to the caller
	// in place of the answer. Like refuse it is asked under the lock.
	lose func() error

	// cancellable clients return the name of what they made although they were
	// cancelled.
	cancellable bool

	// deaf clients don't notice that they were cancelled.
	deaf bool

	resources map[string]*external
	made      map[string]int // by owner
	createsOf map[string]int // by owner
	calls     map[asyncstate.Type]int
	observed  int
	finds     int
	running   int
	most      int
	seq       int
	tokens    []string
}

// external resource.
type external struct {
	owner  string
	token  string
	region string
	handle string
	ready  time.Time
}

func newCloud() *fakeCloud {
	return &fakeCloud{resources: map[string]*external{}, made: map[string]int{}, createsOf: map[string]int{}, calls: map[asyncstate.Type]int{}}
}

func (c *fakeCloud) count(t asyncstate.Type) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.calls[t]
}

func (c *fakeCloud) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()

	var out []string
	for n := range c.resources {
		out = append(out, n)
	}

	slices.Sort(out)

	return out
}

func (c *fakeCloud) ownedBy(owner string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()

	var out []string

	for n, r := range c.resources {
		if r.owner == owner {
			out = append(out, n)
		}
	}

	slices.Sort(out)

	return out
}

func (c *fakeCloud) region(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()

	if r := c.resources[name]; r != nil {
		return r.region
	}

	return ""
}

// set something about the cloud while it is in use.
func (c *fakeCloud) set(fn func(c *fakeCloud)) {
	c.mu.Lock()
	defer c.mu.Unlock()

	fn(c)
}

func (c *fakeCloud) begin(t asyncstate.Type) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.calls[t]++
	c.running++
	c.most = max(c.most, c.running)

	if c.refuse != nil {
		return c.refuse(t)
	}

	return nil
}

func (c *fakeCloud) end() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.running--
}

// loses says what the caller gets in place of the answer, if it is lost.
func (c *fakeCloud) loses() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.lose == nil {
		return nil
	}

	return c.lose()
}

// half of what a request takes.
func (c *fakeCloud) half(ctx context.Context) error {
	c.mu.Lock()
	d := c.takes / 2
	deaf := c.deaf
	c.mu.Unlock()

	if deaf {
		ctx = context.WithoutCancel(ctx)
	}

	return sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A clientKind is by what an external client can determine outcomes after a crash.
type clientKind string

const (
	nothing       clientKind = "nothing"
	finder        clientKind = "finder"
	resumer       clientKind = "resumer"
	token         clientKind = "token"
	deterministic clientKind = "deterministic"
	namedMid      clientKind = "named mid-create"
)

// options of a tracker of clients of that kind.
func (k clientKind) options() []asyncstate.TrackerOption {
	switch k {
	case token:
		return []asyncstate.TrackerOption{asyncstate.WithIdempotentTokens()}
	case deterministic:
		return []asyncstate.TrackerOption{asyncstate.WithDeterministicNames()}
	default:
		return nil
	}
}

// cloudClient is an external client of a cloud. Requests of a process that died
// don't reach it.
type cloudClient struct {
	cloud *fakeCloud
	kind  clientKind
	dead  func() bool

	// bound is the name that the client was connected with, if it takes that.
	bound *string

	// planned is true once it was observed: like Terraform's, the client plans then
	// what it does later.
	planned bool
}

var errDead = errors.New("this process is dead")

func (c *cloudClient) Observe(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	c.cloud.mu.Lock()
	defer c.cloud.mu.Unlock()

	c.cloud.observed++
	c.planned = true

	r, ok := c.cloud.resources[c.name(mg)]
	if !ok {
		return managed.ExternalObservation{}, nil
	}

	mg.SetConditions(xpv2.Available())

	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: r.region == regionOf(mg)}, nil
}

// name of the external resource, as far as it is known.
func (c *cloudClient) name(mg resource.Managed) string {
	if c.kind == deterministic {
		return nameOf(mg)
	}

	if c.bound != nil {
		return *c.bound
	}

	return meta.GetExternalName(mg)
}

func nameOf(mg resource.Managed) string { return "of-" + string(mg.GetUID()) }

func regionOf(mg resource.Managed) string {
	if b, ok := mg.(*v1alpha1.Bucket); ok {
		return b.Spec.ForProvider.Region
	}

	return ""
}

func (c *cloudClient) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	c.cloud.set(func(cloud *fakeCloud) { cloud.createsOf[string(mg.GetUID())]++ })
	c.mustHavePlanned()

	if err := c.cloud.begin(asyncstate.Create); err != nil {
		return managed.ExternalCreation{}, err
	}
	defer c.cloud.end()

	if err := c.cloud.half(ctx); err != nil {
		return managed.ExternalCreation{}, err
	}

	if c.dead() {
		return managed.ExternalCreation{}, errDead
	}

	name, handle, err := c.commit(ctx, mg)
	if err != nil {
		return managed.ExternalCreation{}, err
	}

	switch c.kind {
	case namedMid:
		if err := asyncstate.SetExternalName(ctx, name); err != nil {
			return managed.ExternalCreation{}, fmt.Errorf("%w: %w", asyncstate.ErrOutcomeUnknown, err)
		}
	case resumer:
		if err := asyncstate.SetHandle(ctx, handle); err != nil {
			return managed.ExternalCreation{}, fmt.Errorf("%w: %w", asyncstate.ErrOutcomeUnknown, err)
		}
	}

	if err := c.cloud.half(ctx); err != nil {
		if c.cloud.cancellable {
			meta.SetExternalName(mg, name)
		}

		return managed.ExternalCreation{}, err
	}

	if err := c.cloud.loses(); err != nil {
		return managed.ExternalCreation{}, err
	}

	meta.SetExternalName(mg, name)

	return managed.ExternalCreation{ConnectionDetails: managed.ConnectionDetails{"endpoint": []byte(secretOf(name))}}, nil
}

func secretOf(name string) string { return "SECRET-" + name }

// commit a create: from now on there is an external resource.
func (c *cloudClient) commit(ctx context.Context, mg resource.Managed) (name, handle string, err error) {
	c.cloud.mu.Lock()
	defer c.cloud.mu.Unlock()

	tok := ""
	if c.kind == token {
		if tok = asyncstate.Token(ctx); tok == "" {
			return "", "", errors.New("there is no token")
		}

		c.cloud.tokens = append(c.cloud.tokens, tok)

		for n, r := range c.cloud.resources {
			if r.token == tok {
				return n, r.handle, nil
			}
		}
	}

	c.cloud.seq++
	name = fmt.Sprintf("id-%d", c.cloud.seq)

	if c.kind == deterministic {
		name = nameOf(mg)
		if _, ok := c.cloud.resources[name]; ok {
			return "", "", errors.New("there is one of that name")
		}
	}

	handle = "op-" + name
	c.cloud.resources[name] = &external{
		owner: string(mg.GetUID()), token: tok, region: regionOf(mg), handle: handle,
		ready: time.Now().Add(c.cloud.takes / 2),
	}
	c.cloud.made[string(mg.GetUID())]++

	return name, handle, nil
}

func (c *cloudClient) Update(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
	return managed.ExternalUpdate{}, c.change(ctx, asyncstate.Update, func() {
		if r := c.cloud.resources[c.name(mg)]; r != nil {
			r.region = regionOf(mg)
		}
	})
}

func (c *cloudClient) Delete(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
	return managed.ExternalDelete{}, c.change(ctx, asyncstate.Delete, func() {
		delete(c.cloud.resources, c.name(mg))
	})
}

// mustHavePlanned panics unless the external resource was observed.
func (c *cloudClient) mustHavePlanned() {
	if !c.planned {
		panic("nothing was planned: it was not observed")
	}
}

func (c *cloudClient) change(ctx context.Context, t asyncstate.Type, fn func()) error {
	c.mustHavePlanned()

	if err := c.cloud.begin(t); err != nil {
		return err
	}
	defer c.cloud.end()

	if err := c.cloud.half(ctx); err != nil {
		return err
	}

	if c.dead() {
		return errDead
	}

	c.cloud.mu.Lock()
	fn()
	c.cloud.mu.Unlock()

	return c.cloud.half(ctx)
}

func (c *cloudClient) Disconnect(context.Context) error {
	return nil
}

// A findingClient can find what it made by its owner.
type findingClient struct{ *cloudClient }

func (c findingClient) Find(_ context.Context, mg resource.Managed, _ asyncstate.Attempt) (asyncstate.Finding, error) {
	c.cloud.mu.Lock()
	defer c.cloud.mu.Unlock()

	c.cloud.finds++

	for n, r := range c.cloud.resources {
		if r.owner == string(mg.GetUID()) {
			return asyncstate.Found(n), nil
		}
	}

	return asyncstate.Absent(), nil
}

// A resumingClient can go on with what has a handle.
type resumingClient struct{ *cloudClient }

func (c resumingClient) Resume(ctx context.Context, _ resource.Managed, a asyncstate.Attempt) error {
	name := strings.TrimPrefix(a.Handle, "op-")

	c.cloud.mu.Lock()
	r := c.cloud.resources[name]
	c.cloud.mu.Unlock()

	if r == nil {
		return errors.New("there is no such operation")
	}

	if err := sleep(ctx, time.Until(r.ready)); err != nil {
		return err
	}

	return asyncstate.SetExternalName(ctx, name)
}

// client of that kind.
func (c *fakeCloud) client(k clientKind, dead func() bool) managed.ExternalClient {
	cc := &cloudClient{cloud: c, kind: k, dead: dead}

	switch k {
	case finder:
		return findingClient{cc}
	case resumer:
		return resumingClient{cc}
	default:
		return cc
	}
}

func (c *fakeCloud) connector(k clientKind, dead func() bool) managed.ExternalConnector {
	return managed.ExternalConnectorFn(func(context.Context, resource.Managed) (managed.ExternalClient, error) {
		return c.client(k, dead), nil
	})
}

// boundConnector connects clients that take the external name when they are
// connected, and not from the managed resource that they are called with.
func (c *fakeCloud) boundConnector(dead func() bool) managed.ExternalConnector {
	return managed.ExternalConnectorFn(func(_ context.Context, mg resource.Managed) (managed.ExternalClient, error) {
		name := meta.GetExternalName(mg)
		return findingClient{&cloudClient{cloud: c, kind: finder, dead: dead, bound: &name}}, nil
	})
}
