package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/crashtest"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
)

// An externalCloud is the cloud of one run.
type externalCloud struct {
	*cloud.Cloud

	mu   sync.Mutex
	made []string

	// throttles is how many creates are throttled from now on, and denied how many have
	// succeeded and were answered with an error that says that they did not.
	throttles, denied int

	processes uint64
}

func newCloud(lag time.Duration, throttles int) *externalCloud {
	return &externalCloud{
		Cloud: cloud.New(cloud.Options{
			ReadyAfter: 5 * time.Second, GoneAfter: 5 * time.Second, VisibleAfter: lag,
			Defaults: map[string]string{"region": "north"},
		}),
		throttles: throttles,
	}
}

// Made implements crashtest.Cloud.
func (c *externalCloud) Made() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made)
}

// Exists implements crashtest.Cloud.
func (c *externalCloud) Exists() map[string]string {
	out := map[string]string{}
	for _, r := range c.Inventory() {
		out[r.ID] = fmt.Sprint(r.Properties)
	}
	return out
}

// create a resource, unless the cloud throttles the call.
func (c *externalCloud) create(ctx context.Context, req cloud.CreateRequest) (cloud.Resource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.throttles > 0 {
		c.throttles--
		return cloud.Resource{}, status(http.StatusTooManyRequests)
	}
	before := c.Stats(req.Owner).Created
	r, err := c.Session("").Create(ctx, req)
	if err == nil && c.Stats(req.Owner).Created > before {
		c.made = append(c.made, r.ID)
	}
	return r, err
}

// misled returns an error if the cloud denied creates that had succeeded, and at most as
// many resources were created again or left behind. Only a look-up could prevent that.
func misled(o client.Object, c *externalCloud, _ client.Reader) error {
	exists := c.Exists()
	if o != nil {
		delete(exists, meta.GetExternalName(o))
	}
	made, left := len(c.Made()), len(exists)
	if made > 1+c.denied || left > c.denied || made <= 1 && left == 0 {
		return nil
	}
	return fmt.Errorf(
		"%d creates succeeded and were denied; %d resources were created, and %d are left", c.denied, made, left,
	)
}

// status returns the error of the cloud's client for an HTTP status code. The error for a
// conflict does not say that the call can have succeeded.
func status(code int) error {
	switch code {
	case http.StatusTooManyRequests:
		return ratelimit.Throttled(errors.New("too many requests"), 5*time.Second)
	case http.StatusConflict:
		return errors.New("cannot tag the resource (injected)")
	default:
		return fmt.Errorf("the cloud answered with status %d (injected)", code)
	}
}

// A session calls the cloud from one process. Each call is a step of the run.
type session struct {
	process *crashtest.Process
	cloud   *externalCloud

	// slow says that creates and updates take long, for which a provider has an asynchronous
	// client. rand decides how long.
	slow bool
	rand *rand.Rand
}

// newSession returns the session of a new process.
func newSession(p *crashtest.Process, c *externalCloud, slow bool, seed uint64) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes++
	return &session{
		process: p, cloud: c, slow: slow,
		rand: rand.New(rand.NewPCG(seed, c.processes)), //nolint:gosec // The same seed has to lead the same scenario.
	}
}

// open logs in.
func (s *session) open(ctx context.Context, _ string) (cloud.Client, error) {
	return s, s.process.Step(ctx, string(cloud.OpLogin), func() error { return nil })
}

// call the cloud, in a step. It may take effect when its caller has given up.
func call[R any](
	ctx context.Context, s *session, op cloud.Op, id string, effect func(context.Context, *cloud.Session) (R, error),
) (out R, err error) {
	if s.slow && (op == cloud.OpCreate || op == cloud.OpUpdate) {
		takes := []time.Duration{0, 0, 2 * time.Second, 20 * time.Second}
		if err := (cloud.RealClock{}).Sleep(ctx, takes[s.rand.IntN(len(takes))]); err != nil {
			return out, err
		}
	}
	err = s.process.Step(ctx, string(op)+" "+id, func() (err error) {
		out, err = effect(context.WithoutCancel(ctx), s.cloud.Session(""))
		return err
	})
	return out, err
}

// Create a resource.
func (s *session) Create(ctx context.Context, req cloud.CreateRequest) (cloud.Resource, error) {
	// An operation in the background has a token of its own.
	if token := asyncstate.Token(ctx); token != "" && req.Token != "" {
		req.Token = token
	}
	created := false
	create := func(ctx context.Context, _ *cloud.Session) (cloud.Resource, error) {
		r, err := s.cloud.create(ctx, req)
		created = err == nil
		return r, err
	}
	r, err := call(ctx, s, cloud.OpCreate, req.Name, create)
	if created && err != nil && !asyncstate.OutcomeUnknown(err) {
		s.cloud.mu.Lock()
		defer s.cloud.mu.Unlock()
		s.cloud.denied++
	}
	return r, err
}

// Get a resource.
func (s *session) Get(ctx context.Context, id string) (cloud.Resource, error) {
	return call(ctx, s, cloud.OpGet, id, func(ctx context.Context, c *cloud.Session) (cloud.Resource, error) {
		return c.Get(ctx, id)
	})
}

// Update a resource.
func (s *session) Update(ctx context.Context, id string, properties map[string]string) (cloud.Resource, error) {
	return call(ctx, s, cloud.OpUpdate, id, func(ctx context.Context, c *cloud.Session) (cloud.Resource, error) {
		return c.Update(ctx, id, properties)
	})
}

// Delete a resource.
func (s *session) Delete(ctx context.Context, id string) error {
	_, err := call(ctx, s, cloud.OpDelete, id, func(ctx context.Context, c *cloud.Session) (struct{}, error) {
		return struct{}{}, c.Delete(ctx, id)
	})
	return err
}

// List resources.
func (s *session) List(ctx context.Context, f cloud.Filter) ([]cloud.Resource, error) {
	return call(ctx, s, cloud.OpList, "", func(ctx context.Context, c *cloud.Session) ([]cloud.Resource, error) {
		return c.List(ctx, f)
	})
}
