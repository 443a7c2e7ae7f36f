//go:build upjet

package upjet_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	upjetconfig "github.com/crossplane/upjet/v2/pkg/config"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// row is something that happens to a provider.
type row struct {
	name string
	run  func(t *testing.T, w *world) string
}

func rows() []row {
	return []row{
		{"create ended, reconciled", func(t *testing.T, w *world) string { return w.created(t).verdict(t) }},
		{"then restart", func(t *testing.T, w *world) string {
			w.created(t).kill()
			return w.start(t).rest(t)
		}},
		{"killed while it runs", func(t *testing.T, w *world) string {
			w.creating(t).kill()
			return w.start(t).rest(t)
		}},
		{"ended, not stored, killed", func(t *testing.T, w *world) string {
			p := w.creating(t)
			p.refuse(true)
			w.clock.Advance(readyAfter)
			await(t, "the result meets an API server that is away", p.hasRefused)
			p.kill()
			return w.start(t).rest(t)
		}},
		{"graceful shutdown in mid-create", func(t *testing.T, w *world) string {
			w.creating(t).shutDown(t)
			return w.start(t).rest(t)
		}},
		{"Terraform error after the id was set, killed before the next Observe", func(t *testing.T, w *world) string {
			w.cloud.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
				if c.Op == cloud.OpGet && w.requested() {
					return errors.New("InternalError: try again")
				}
				return nil
			}})
			p := w.start(t)
			p.until(t, "the create is requested", w.requested)
			await(t, "the create has failed", func() bool { return p.failed(t) })
			p.kill()
			w.cloud.SetHooks(cloud.Hooks{})
			return w.start(t).rest(t)
		}},
		{"the create ends while a reconcile is inside upjet's Connect, no restart", func(t *testing.T, w *world) string {
			d := &door{entered: make(chan struct{}), leave: make(chan struct{})}
			p := w.start(t, configured(d.into))
			p.until(t, "the create is requested", w.requested)
			d.open()
			reconciled := make(chan struct{})
			go func() {
				defer close(reconciled)
				p.reconcile(t)
			}()
			select {
			case <-d.entered:
			case <-reconciled:
			}
			d.shut()
			w.clock.Advance(readyAfter)
			if !w.provider.graft {
				await(t, "the create has ended", func() bool { return !p.states.Tracker(w.get(t)).LastOperation.IsRunning() })
			}
			close(d.leave)
			<-reconciled
			return p.rest(t)
		}},
		{"killed while it runs, then deleted", func(t *testing.T, w *world) string {
			w.creating(t).kill()
			must(t, "Delete()", w.admin.Delete(t.Context(), w.get(t)))
			return w.start(t).rest(t)
		}},
	}
}

// creating returns a process whose create is requested, and does not end before the
// cloud's clock says so.
func (w *world) creating(t *testing.T) *process {
	t.Helper()
	p := w.start(t)
	p.until(t, "the create is requested", w.requested)
	return p
}

// created returns a process whose create has ended, and was reconciled.
func (w *world) created(t *testing.T) *process {
	t.Helper()
	p := w.creating(t)
	w.clock.Advance(readyAfter)
	p.until(t, "the managed resource is ready", func() bool { return ready(w.get(t)) })
	return p
}

// failed reports whether the create has failed, and all is stored that will be.
func (p *process) failed(t *testing.T) bool {
	t.Helper()
	mg := p.get(t)
	if !p.provider.graft {
		return !p.states.Tracker(mg).LastOperation.IsRunning()
	}
	r := recordOf(t, mg)
	return r != nil && r["phase"] != "running"
}

// shutDown ends a process as a manager does.
func (p *process) shutDown(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var wg sync.WaitGroup
	for _, r := range p.runnables {
		wg.Go(func() { _ = r.Start(ctx) })
	}
	wg.Wait()
	p.kill()
}

// door stops who connects where upjet has looked whether there is a state, and has not
// replaced it yet.
type door struct {
	mu             sync.Mutex
	stops          bool
	once           sync.Once
	entered, leave chan struct{}
}

func (d *door) open() { d.set(true) }
func (d *door) shut() { d.set(false) }

func (d *door) set(stops bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stops = stops
}

func (d *door) into(r *upjetconfig.Resource) {
	inner := r.ExternalName.SetIdentifierArgumentFn
	r.ExternalName.SetIdentifierArgumentFn = func(base map[string]any, name string) {
		inner(base, name)
		d.mu.Lock()
		// The state that is reconstructed has an observation's attributes, or none.
		_, parameters := base["size"]
		stops := d.stops && !parameters
		d.mu.Unlock()
		if stops {
			d.once.Do(func() { close(d.entered) })
			<-d.leave
		}
	}
}

// want is what a provider comes to. What is said of upstream is measured, not wished: if
// it fails, change what the documentation says.
func want(k kind, p provider, r string) string {
	deleted := strings.HasSuffix(r, "then deleted")
	switch {
	case !k.assigned() || p.finders:
		if deleted {
			return "deleted"
		}
		return "1, stored"
	case p.graft:
		switch r {
		case "killed while it runs", "ended, not stored, killed", "killed while it runs, then deleted":
			return "1, stops"
		default:
			return "1, stored"
		}
	case deleted:
		return "leaked"
	case r == "create ended, reconciled":
		return "1, not stored"
	case r == "then restart" && k.group == "framework":
		// The ID is in status, too.
		return "1, not stored"
	default:
		return "2"
	}
}

// cell of the matrix: the outcome in memory, and on a real control plane if it was
// run there.
type cell struct{ memory, real string }

func (c cell) String() string {
	if c.real == "" || c.real == c.memory {
		return c.memory
	}
	return c.memory + " / " + c.real
}

func TestMatrix(t *testing.T) {
	var mu sync.Mutex
	cells := map[string]cell{}
	key := func(k kind, p provider, row string) string { return k.name + "/" + p.name + "/" + row }
	check := func(t *testing.T, k kind, p provider, row string, got cell) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		had := cells[key(k, p, row)]
		cells[key(k, p, row)] = cell{memory: had.memory + got.memory, real: had.real + got.real}
		if want := want(k, p, row); got.memory+got.real != want {
			t.Errorf("%s: %s: want %q, got %q", k.name, row, want, got)
		}
	}
	t.Run("cells", func(t *testing.T) {
		realCells(t, func(t *testing.T, k kind, p provider, row, got string) {
			t.Helper()
			check(t, k, p, row, cell{real: got})
		})
		for _, k := range kinds() {
			for _, p := range providers() {
				for _, r := range rows() {
					t.Run(key(k, p, r.name), func(t *testing.T) {
						t.Parallel()
						got := r.run(t, newWorld(t, k, p))

						// What goes wrong without Graft is a race, which upjet wins now and then.
						for i := 0; i < 4 && !p.graft && got != want(k, p, r.name); i++ {
							got = r.run(t, newWorld(t, k, p))
						}
						check(t, k, p, r.name, cell{memory: got})
					})
				}
			}
		}
	})
	table := fmt.Sprintf("%-24s %-72s%-16s%-16s%-16s%s\n", "resource", "", "stock", "Graft", "Graft, finder", "real control plane")
	for _, k := range kinds() {
		for _, r := range rows() {
			table += fmt.Sprintf("%-24s %-72s", k.name, r.name)
			ran := "yes"
			for _, p := range providers() {
				c := cells[key(k, p, r.name)]
				table += fmt.Sprintf("%-16s", c)
				if c.real == "" {
					ran = "no"
				}
			}
			table += ran + "\n"
		}
	}
	t.Logf("creates, and whether the name is stored:\n%s", table)
}
