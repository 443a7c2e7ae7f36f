//go:build upjet

package upjet_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/upjet/v2/pkg/resource"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// replaced is a deletion while the diff has a change that requires a replacement (upjet#420, upjet#723).
const replaced = "deleted with a changed argument that requires a replacement, killed"

// rows are the sequences of events by name.
func rows() map[string]func(t *testing.T, g *group) {
	return map[string]func(t *testing.T, g *group){
		"create ended, reconciled": func(t *testing.T, g *group) { g.created(t) },
		"then restart": func(t *testing.T, g *group) {
			g.created(t).kill()
			g.rest(t)
		},
		"killed while it runs": func(t *testing.T, g *group) {
			g.creating(t).kill()
			g.rest(t)
		},
		"ended, not stored, killed": func(t *testing.T, g *group) {
			p := g.creating(t)
			_, err := fmt.Fprintln(p.in, refuse)
			must(t, "Fprintln()", err)
			p.until(t, "the API server is away", func(*world, xpresource.Managed) bool {
				return p.says(refusing, "") > 0
			})
			g.clock.Advance(readyAfter)
			p.until(t, "the result is refused", func(w *world, _ xpresource.Managed) bool {
				return p.says(refused, w.name) > 0
			})
			p.kill()
			g.rest(t)
		},
		"graceful shutdown in mid-create": func(t *testing.T, g *group) {
			p := g.creating(t)
			must(t, "Close()", p.in.Close())
			<-p.died
			if !p.cmd.ProcessState.Success() {
				t.Fatalf("the process ended with %s: %s", p.cmd.ProcessState, p.errors.String())
			}
			g.rest(t)
		},
		"Terraform error after the id was set, killed before the next Observe": func(t *testing.T, g *group) {
			g.cloud.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
				if c.Op == cloud.OpGet &&
					slices.ContainsFunc(g.cloud.Inventory(), func(r cloud.Resource) bool { return r.ID == c.ID }) {
					return errors.New("InternalError: try again")
				}
				return nil
			}})
			p := g.start(t)
			p.until(t, "the create has failed", func(w *world, mg xpresource.Managed) bool {
				if !g.provider.graft {
					// Upjet may lose the result of an operation, but observes then.
					return mg.GetCondition(resource.TypeLastAsyncOperation).Status == corev1.ConditionFalse ||
						mg.GetCondition("Synced").Status == corev1.ConditionFalse
				}
				r := recordOf(t, mg)
				return r != nil && r["phase"] != "running"
			})
			p.kill()
			g.cloud.SetHooks(cloud.Hooks{})
			g.rest(t)
		},
		"the create ends while a reconcile is inside upjet's Connect, no restart": func(t *testing.T, g *group) {
			p := g.creating(t, func(c *processConfig) { c.Holds = true })
			if !g.provider.graft {
				p.until(t, "a reconcile is inside Connect", func(w *world, _ xpresource.Managed) bool {
					return p.says(held, w.name) > 0
				})
			}
			g.clock.Advance(readyAfter)
			g.pass(t)
			p.rest(t)
		},
		"killed while it runs, then deleted": func(t *testing.T, g *group) {
			g.creating(t).kill()
			g.remove(t)
			g.rest(t)
		},
		replaced: func(t *testing.T, g *group) {
			p := g.created(t)
			g.move(t)
			g.remove(t)
			p.until(t, "it is deleted or created again", func(w *world, mg xpresource.Managed) bool {
				if mg != nil && g.provider.graft {
					w.waits(t, mg)
				}
				return mg == nil || w.creates() > 1
			})
			p.kill()
			g.rest(t)
		},
	}
}

// want returns the verdict for a row. Those for upstream are measured: if one fails, correct docs/upjet.md.
func want(k kind, p provider, r string) string {
	deleted := strings.HasSuffix(r, "then deleted")
	switch {
	case r == replaced:
		if !p.graft && k.group == "sdk" {
			return "leaked"
		}
		return "deleted"
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

// The provider has four controllers in one process, which is killed with SIGKILL.
func TestMatrix(t *testing.T) {
	for row, run := range rows() {
		for _, p := range providers() {
			t.Run(p.name+"/"+row, func(t *testing.T) {
				t.Parallel()
				g := newGroup(t, p)
				run(t, g)
				for _, w := range g.worlds {
					got := w.verdict(t)
					t.Logf("%s: %s", w.kind.name, got)
					if want := want(w.kind, p, row); got != want {
						t.Errorf("%s: want %q, got %q", w.kind.name, want, got)
					}
				}
			})
		}
	}
}
