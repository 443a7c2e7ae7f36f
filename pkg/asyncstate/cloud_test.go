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
	fake "github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A fakeCloud is slow, and may fail. It gives names of its own to the resources that it
// creates, unless a request has one.
type fakeCloud struct {
	*fake.Cloud

	mu sync.Mutex

	requestDuration time.Duration // of a request, half of it before anything is done

	// reject is asked before anything is done, lose when a create has been done: its error
	// goes to the caller in place of the answer. Both are asked under the lock.
	reject     func(verb asyncstate.Type) error
	loseAnswer func() error

	// Cancelled clients return the name of their resource (cancellable), or continue (deaf).
	cancellable, ignoresCancel bool

	connectionDetails managed.ConnectionDetails // observed of each resource
	clients           []*cloudClient            // that were connected
	calls             map[asyncstate.Type]int
	running           int
	mostRunning       int
}

func newCloud() *fakeCloud {
	return &fakeCloud{
		Cloud: fake.New(fake.Options{IDPrefixes: map[string]string{v1alpha1.BucketKind: "id"}}),
		calls: map[asyncstate.Type]int{},
	}
}

func (c *fakeCloud) count(t asyncstate.Type) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[t]
}

func (c *fakeCloud) names(owner ...string) []string {
	var out []string
	for _, r := range c.Inventory() {
		if len(owner) == 0 || slices.Contains(owner, r.Owner) {
			out = append(out, r.ID)
		}
	}
	return out
}

func (c *fakeCloud) region(name string) string {
	r, _ := c.Session("").Get(context.Background(), name)
	return r.Properties["region"]
}

// add a resource of uid-1, past all that takes time or goes wrong.
func (c *fakeCloud) add(name, region string) {
	if _, err := c.Session("").Create(context.Background(), requestOf("uid-1", name, region)); err != nil {
		panic(err)
	}
}

func (c *fakeCloud) clear() {
	for _, name := range c.names() {
		_ = c.Session("").Delete(context.Background(), name)
	}
}

func requestOf(owner, name, region string) fake.CreateRequest {
	return fake.CreateRequest{
		Kind:       v1alpha1.BucketKind,
		Owner:      owner,
		Name:       name,
		Properties: map[string]string{"region": region},
	}
}

func (c *fakeCloud) set(fn func(c *fakeCloud)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(c)
}

func (c *fakeCloud) rejectRequests(err error) {
	c.set(func(c *fakeCloud) { c.reject = func(asyncstate.Type) error { return err } })
}

func (c *fakeCloud) begin(t asyncstate.Type) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[t]++
	c.running++
	c.mostRunning = max(c.mostRunning, c.running)
	if c.reject != nil {
		return c.reject(t)
	}
	return nil
}

// waitHalf waits for half of the time that a request takes.
func (c *fakeCloud) waitHalf(ctx context.Context) error {
	c.mu.Lock()
	d := c.requestDuration / 2
	if c.ignoresCancel {
		ctx = context.WithoutCancel(ctx)
	}
	c.mu.Unlock()
	return sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) error { return fake.RealClock{}.Sleep(ctx, d) }

// A clientKind says how an external client can determine outcomes after a crash.
type clientKind string

const (
	plainClient   clientKind = "nothing"
	finder        clientKind = "finder"
	resumer       clientKind = "resumer"
	token         clientKind = "token"
	deterministic clientKind = "deterministic"
	namesEarly    clientKind = "named mid-create"
)

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
	*fake.Session

	cloud *fakeCloud
	kind  clientKind
	dead  func() bool

	// name of the external resource when the client was connected. The client takes
	// none from the managed resource that it is called with.
	name string

	planned bool // Like Terraform's, the client plans what it does later when it observes.

	// calls counts the calls in progress, disconnects the disconnects. wrong is a misuse.
	mu                 sync.Mutex
	calls, disconnects int
	wrong              string
}

var errDead = errors.New("this process is dead")

func (c *cloudClient) use() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls++; c.disconnects > 0 {
		c.wrong = "is called although it was disconnected"
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls--
	}
}

func (c *cloudClient) Disconnect(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.disconnects++; c.calls > 0 {
		c.wrong = "is disconnected in the middle of a call"
	}
	return errors.New("cannot disconnect")
}

// misused describes each wrong use of the clients, whose processes have
// ended: each is disconnected once, and not before all is over that was begun with it.
func (c *fakeCloud) misused() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for i, cc := range c.clients {
		if cc.wrong != "" || cc.disconnects != 1 || cc.calls != 0 {
			out = append(out, fmt.Sprintf(
				"client %d of %d was disconnected %d times, has %d calls left, %s", i+1, len(c.clients),
				cc.disconnects, cc.calls, cc.wrong,
			))
		}
	}
	return out
}

func (c *cloudClient) Observe(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	defer c.use()()
	c.planned = true
	r, err := c.Get(ctx, c.name)
	if err != nil {
		return managed.ExternalObservation{}, nil //nolint:nilerr // It isn't there.
	}
	mg.SetConditions(xpv2.Available())
	return managed.ExternalObservation{
		ResourceExists:    true,
		ResourceUpToDate:  r.Properties["region"] == regionOf(mg),
		ConnectionDetails: c.cloud.connectionDetails,
	}, nil
}

func nameOf(mg resource.Managed) string { return "of-" + string(mg.GetUID()) }

func regionOf(mg resource.Managed) string {
	b, _ := mg.(*v1alpha1.Bucket)
	return b.Spec.ForProvider.Region
}

func (c *cloudClient) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	name := ""
	err := c.change(ctx, asyncstate.Create, func() (err error) {
		name, err = c.commit(ctx, mg)
		return err
	})
	c.cloud.set(func(cloud *fakeCloud) {
		if err == nil && cloud.loseAnswer != nil {
			err = cloud.loseAnswer()
		}
	})
	if err != nil {
		if c.cloud.cancellable && name != "" {
			meta.SetExternalName(mg, name)
		}
		return managed.ExternalCreation{}, err
	}
	meta.SetExternalName(mg, name)
	return managed.ExternalCreation{
		ConnectionDetails: managed.ConnectionDetails{"endpoint": []byte(secretOf(name))},
	}, nil
}

func secretOf(name string) string { return "SECRET-" + name }

// commit a create: from now on there is an external resource, of the name that it
// returns.
func (c *cloudClient) commit(ctx context.Context, mg resource.Managed) (string, error) {
	req := requestOf(string(mg.GetUID()), "", regionOf(mg))
	switch c.kind {
	case token:
		if req.Token = asyncstate.Token(ctx); req.Token == "" {
			return "", errors.New("there is no token")
		}
	case deterministic:
		req.Name = nameOf(mg)
	}
	r, err := c.Session.Create(context.WithoutCancel(ctx), req)
	if err != nil {
		return "", err
	}
	switch c.kind {
	case namesEarly:
		err = asyncstate.SetExternalName(ctx, r.ID)
	case resumer:
		err = asyncstate.SetHandle(ctx, "op-"+r.ID)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", asyncstate.ErrOutcomeUnknown, err)
	}
	return r.ID, err
}

func (c *cloudClient) Update(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
	return managed.ExternalUpdate{}, c.change(ctx, asyncstate.Update, func() error {
		_, err := c.Session.Update(context.WithoutCancel(ctx), c.name, map[string]string{"region": regionOf(mg)})
		return err
	})
}

func (c *cloudClient) Delete(ctx context.Context, _ resource.Managed) (managed.ExternalDelete, error) {
	return managed.ExternalDelete{}, c.change(ctx, asyncstate.Delete, func() error {
		if err := c.Session.Delete(context.WithoutCancel(ctx), c.name); !errors.Is(err, fake.ErrNotFound) {
			return err
		}
		return nil
	})
}

// change something, unless nothing was planned.
func (c *cloudClient) change(ctx context.Context, t asyncstate.Type, do func() error) error {
	defer c.use()()
	if !c.planned {
		panic("nothing was planned: it was not observed")
	}
	defer c.cloud.set(func(c *fakeCloud) { c.running-- })
	if err := c.cloud.begin(t); err != nil {
		return err
	}
	if err := c.cloud.waitHalf(ctx); err != nil {
		return err
	}
	if c.dead() {
		return errDead
	}
	if err := do(); err != nil {
		return err
	}
	return c.cloud.waitHalf(ctx)
}

type findingClient struct{ *cloudClient }

func (c findingClient) Find(
	ctx context.Context, mg resource.Managed, _ asyncstate.Attempt,
) (asyncstate.Finding, error) {
	defer c.use()()
	rs, err := c.List(ctx, fake.Filter{Owner: string(mg.GetUID())})
	if err != nil || len(rs) == 0 {
		return asyncstate.Absent(), err
	}
	return asyncstate.Found(rs[0].ID), nil
}

type resumingClient struct{ *cloudClient }

func (c resumingClient) Resume(ctx context.Context, _ resource.Managed, a asyncstate.Attempt) error {
	defer c.use()()
	r, err := c.Get(ctx, strings.TrimPrefix(a.Handle, "op-"))
	if err != nil {
		return err
	}
	if err := sleep(ctx, time.Until(r.CreatedAt.Add(c.cloud.requestDuration/2))); err != nil {
		return err
	}
	return asyncstate.SetExternalName(ctx, r.ID)
}

// client returns an external client of the environment's kind.
func (p *process) client(mg resource.Managed) managed.ExternalClient {
	c := &cloudClient{
		Session: p.environment.cloud.Session(""),
		cloud:   p.environment.cloud,
		kind:    p.environment.kind,
		dead:    p.dead.Load,
		name:    meta.GetExternalName(mg),
	}
	if c.kind == deterministic {
		c.name = nameOf(mg)
	}
	c.cloud.set(func(cloud *fakeCloud) { cloud.clients = append(cloud.clients, c) })
	switch c.kind {
	case finder:
		return findingClient{c}
	case resumer:
		return resumingClient{c}
	default:
		return c
	}
}
