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
)

// The cache becomes stale at a moment at which that matters. The object must still
// end in the correct state, without a poll.
func TestStaleCache(t *testing.T) {
	const triesMeanwhile = 5

	// A failure writes one status, and success the one before again: what is read
	// then looks as if there were nothing to write.
	t.Run("StatusBackAndForth", func(t *testing.T) {
		s := newServer(t)
		world := cloud.New(cloud.Options{})
		watches := newFloodgate()
		t.Cleanup(watches.open)

		b := sample.NewBucket(namespace, "one")
		s.create(t, b)
		start(t, graft, setup{connectors: syncConnectors(world), traffic: &traffic{watches: watches}})
		s.until(t, "it shows Available", []sample.Instance{b}, isAvailable)

		// What was queued before is done when this is.
		s.annotate(t, meta.AnnotationKeyReconcileRequestedAt, "now", b)
		s.until(t, "it is at rest", []sample.Instance{b}, func(mg sample.Instance) bool { return lastHandled(t, mg) == "now" })

		var gets atomic.Int32

		world.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
			if c.Op != cloud.OpGet || gets.Add(1) > 1 {
				return nil
			}

			watches.shut()

			return errors.New("service unavailable")
		}})

		s.annotate(t, "example.org/touched", "yes", b)

		eventually(t, "it is reconciled again and again", func() (bool, string) { return gets.Load() > triesMeanwhile, fmt.Sprint(gets.Load()) })

		if got := condition(read(t, s, b), xpv2.TypeSynced); got != "False/ReconcileError" {
			t.Errorf("Synced while the cache is stale: want False/ReconcileError, which may be overwritten only after it was read, got %s", got)
		}

		watches.open()
		s.until(t, "it shows what was observed last", []sample.Instance{b}, isAvailable)
	})

	t.Run("NameOfNewResource", func(t *testing.T) {
		s := newServer(t)
		world := cloud.New(cloud.Options{})
		watches := newFloodgate()
		t.Cleanup(watches.open)

		var connects atomic.Int32

		world.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
			// Shut before anything is written.
			if c.Op == cloud.OpLogin && connects.Add(1) == 1 {
				watches.shut()
			}

			return nil
		}})

		b := sample.NewBucket(namespace, "one")
		s.create(t, b)
		start(t, graft, setup{connectors: syncConnectors(world), traffic: &traffic{watches: watches}})

		eventually(t, "it is reconciled again and again", func() (bool, string) { return connects.Load() > triesMeanwhile, fmt.Sprint(connects.Load()) })
		watches.open()
		s.until(t, "it shows Available", []sample.Instance{b}, isAvailable)

		got := read(t, s, b)
		if st := world.Stats(string(b.GetUID())); st.Created != 1 || externalName(got) != world.Inventory()[0].ID {
			t.Errorf("want one external resource and its name stored, got %+v and name %q", st, externalName(got))
		}
	})
}

// A floodgate holds back what watches have to tell.
type floodgate struct {
	mu   sync.Mutex
	flow chan struct{} // Closed while events may pass.
}

func newFloodgate() *floodgate {
	g := &floodgate{flow: make(chan struct{})}
	close(g.flow)

	return g
}

func (g *floodgate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.flow = make(chan struct{})
}

func (g *floodgate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()

	select {
	case <-g.flow:
	default:
		close(g.flow)
	}
}

func (g *floodgate) passed(ctx context.Context) error {
	g.mu.Lock()
	flow := g.flow
	g.mu.Unlock()

	select {
	case <-flow:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// through returns a response whose body flows through the gate.
func (g *floodgate) through(r *http.Request, response *http.Response) *http.Response {
	response.Body = &gatedBody{ReadCloser: response.Body, gate: g, ctx: r.Context()}

	return response
}

type gatedBody struct {
	io.ReadCloser

	gate *floodgate
	ctx  context.Context // A reader has no other way to learn of it.
}

func (b *gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if gerr := b.gate.passed(b.ctx); gerr != nil {
		return 0, gerr
	}

	return n, err
}
