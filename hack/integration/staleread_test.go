//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// The cache becomes stale before anything is written, and stays so while a managed
// resource is created. There is one create, and its name is stored, without a poll.
func TestStaleCache(t *testing.T) {
	const triesMeanwhile = 5

	s := newServer(t)
	world := cloud.New(cloud.Options{})
	watches := &floodgate{flow: make(chan struct{})}
	t.Cleanup(watches.open)

	var connects atomic.Int32

	world.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
		if c.Op == cloud.OpLogin && connects.Add(1) == 1 {
			watches.shut.Store(true)
		}

		return nil
	}})

	b := v1alpha1.NewBucket(namespace, "one")
	s.create(t, b)
	start(t, graft, setup{connectors: syncConnectors(world), wrap: watches.wrap})

	eventually(t, "it is reconciled again and again", func() (bool, string) { return connects.Load() > triesMeanwhile, fmt.Sprint(connects.Load()) })
	watches.open()
	s.until(t, "it shows Available", []sample.Instance{b}, isAvailable)
	s.owned(t, world, 1)
}

// The cache becomes stale while a failure writes one status, and success the one
// before again: what is read then looks as if there were nothing to write.
func TestStaleCache_StatusBackAndForth(t *testing.T) {
	const triesMeanwhile = 5

	s := newServer(t)
	world := cloud.New(cloud.Options{})
	watches := &floodgate{flow: make(chan struct{})}
	t.Cleanup(watches.open)

	b := v1alpha1.NewBucket(namespace, "one")
	s.create(t, b)
	start(t, graft, setup{connectors: syncConnectors(world), wrap: watches.wrap})
	s.until(t, "it shows Available", []sample.Instance{b}, isAvailable)

	// What was queued before is done when this is.
	s.annotate(t, meta.AnnotationKeyReconcileRequestedAt, "now", b)
	s.until(t, "it is at rest", []sample.Instance{b}, func(mg sample.Instance) bool { return lastHandled(t, mg) == "now" })

	var gets atomic.Int32

	world.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
		if c.Op != cloud.OpGet || gets.Add(1) > 1 {
			return nil
		}

		watches.shut.Store(true)

		return errors.New("service unavailable")
	}})

	s.annotate(t, "example.org/touched", "yes", b)
	eventually(t, "it is reconciled again and again", func() (bool, string) { return gets.Load() > triesMeanwhile, fmt.Sprint(gets.Load()) })

	if got := condition(read(t, s, b), xpv2.TypeSynced); got != "False/ReconcileError" {
		t.Errorf("Synced while the cache is stale: want False/ReconcileError, which may be overwritten only after it was read, got %s", got)
	}

	watches.open()
	s.until(t, "it shows what was observed last", []sample.Instance{b}, isAvailable)
}

// A floodgate holds back the events of watches while it is shut.
type floodgate struct {
	shut atomic.Bool
	once sync.Once
	flow chan struct{} // Closed when the gate is open again, for good.
}

func (g *floodgate) open() { g.once.Do(func() { close(g.flow) }) }

func (g *floodgate) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil && r.URL.Query().Get("watch") == "true" {
			response.Body = &gatedBody{ReadCloser: response.Body, gate: g, ctx: r.Context()}
		}

		return response, err
	})
}

type gatedBody struct {
	io.ReadCloser

	gate *floodgate
	ctx  context.Context // A reader has no other way to learn of it.
}

func (b *gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.gate.shut.Load() {
		return n, err
	}

	select {
	case <-b.gate.flow:
		return n, err
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}
