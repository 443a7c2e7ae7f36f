package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// TestSample disturbs lives at points that a seed picks. The command does it at all
// of them.
func TestSample(t *testing.T) {
	graft := slices.DeleteFunc(columns(), func(c column) bool { return c.side != graftSide })
	e := environment{seed: 1}
	fs := slices.DeleteFunc(faults(), func(f fault) bool { return f.optional })
	for _, v := range (sweep{columns: graft, faults: fs, environment: e, lives: 6, sample: 16, pairs: 16}).run(t) {
		if text := violates(v.point, v.finding); text != "" {
			t.Errorf("%s: %s\n%s", v.point.name(), text, v.point.command(e))
		}
	}
}

// TestDenied holds what Graft promises of a create that made something and returned an
// error that says nothing of it.
func TestDenied(t *testing.T) {
	cases := map[string]struct {
		reason string
		life   string
		misled bool
	}{
		"SyncFinder":   {reason: "It is looked up before the next create.", life: "create/sync/finder"},
		"SyncDeleted":  {reason: "It is looked up before the object goes.", life: "delete-in-create/sync/connect"},
		"SyncName":     {reason: "It is observed under its name.", life: "create/sync/name"},
		"SyncNothing":  {reason: "There is nothing to look it up by.", life: "create/sync/nothing", misled: true},
		"AsyncFinder":  {reason: "It is looked up before the next create.", life: "create/async/finder"},
		"AsyncConnect": {reason: "It is looked up before the next create.", life: "create/async/connect"},
		"AsyncDeleted": {reason: "It is looked up before the object goes.", life: "delete-in-create/async/finder"},
		"AsyncName":    {reason: "It is observed under its name.", life: "create/async/name"},
		"AsyncToken":   {reason: "The next attempt has another token.", life: "create/async/token", misled: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := leadAt(t, tc.life+"/cloud-denied/Create", graftSide, columns(), 1)
			if got.bad() || got.stopped || got.misled != tc.misled {
				t.Errorf("\n%s\nwant misled %t, got %t: %s", tc.reason, tc.misled, got.misled, strings.Join(got.why, "\n"))
			}
		})
	}
}

// leadAt leads a life that is disturbed at the first call of an operation of the
// cloud, which is named in place of the step's number.
func leadAt(t *testing.T, name, side string, cs []column, seed uint64) finding {
	t.Helper()
	parts := strings.Split(name, "/")
	fault, op := parts[3], parts[4]
	calm, err := parse(strings.Join(append(parts[:3:3], undisturbed), "/"), side, cs)
	if err != nil {
		t.Fatal(err)
	}
	e := environment{seed: seed}
	for _, p := range disturbed(calm, calm.lead(t, e, nil).steps, faults()) {
		if d := p.at[0]; d.fault.name == fault && strings.HasPrefix(d.want, string(cloudAPI)+" "+op+" ") {
			return p.lead(t, e, nil)
		}
	}
	t.Fatalf("%s has no step %s that suits %s", calm.name(), op, fault)
	return finding{}
}

// TestDetects proves that the harness sees what it is there to see: upstream's
// reconciler, broken on purpose, has to be found out.
func TestDetects(t *testing.T) {
	// broken returns columns whose reconciler does some harm.
	broken := func(harm func(p *process, inner reconcile.Reconciler) reconcile.Reconciler) []column {
		return []column{{
			side: graftSide, mode: syncMode,
			build: func(p *process, k clientKind) (reconcile.Reconciler, error) {
				return harm(p, newUpstream(p, k, sample.NewSync[resource.Managed](p.world.cloud, k.options()...))), nil
			},
		}}
	}

	deletion := func(do func(p *process, d *v1alpha1.Database) error) []column {
		return broken(func(p *process, inner reconcile.Reconciler) reconcile.Reconciler {
			return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				if d, err := p.world.object(); err == nil && d != nil && meta.WasDeleted(d) {
					return reconcile.Result{}, do(p, d)
				}
				return inner.Reconcile(ctx, req)
			})
		})
	}

	asleep := func(d time.Duration) func(p *process, inner reconcile.Reconciler) reconcile.Reconciler {
		return func(p *process, inner reconcile.Reconciler) reconcile.Reconciler {
			return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				if time.Since(p.world.began) < d {
					return reconcile.Result{RequeueAfter: d}, nil
				}
				return inner.Reconcile(ctx, req)
			})
		}
	}
	cases := map[string]struct {
		reason  string
		columns []column
		life    string
		want    func(f finding) bool
	}{
		"Sound": {
			reason:  "What isn't broken is fine.",
			columns: broken(func(_ *process, inner reconcile.Reconciler) reconcile.Reconciler { return inner }),
			life:    "create/sync/token/crash-after/Create",
			want:    func(f finding) bool { return !f.bad() },
		},
		"Duplicate": {
			reason: "A process that forgets that a create was begun makes a second resource.",
			columns: broken(func(p *process, inner reconcile.Reconciler) reconcile.Reconciler {
				if d, err := p.world.object(); err == nil && d != nil {
					meta.RemoveAnnotations(d, meta.AnnotationKeyExternalCreatePending)
					_ = p.world.server.Admin().Update(context.Background(), d)
				}
				return inner
			}),
			life: "create/sync/nothing/crash-after/Create",
			want: func(f finding) bool { return f.duplicate && f.leak },
		},
		"Leak": {
			reason: "A process that removes the finalizer without deleting the external resource leaks it.",
			columns: deletion(func(p *process, d *v1alpha1.Database) error {
				d.SetFinalizers(nil)
				return p.world.server.Admin().Update(context.Background(), d)
			}),
			life: "delete/sync/token/" + undisturbed,
			want: func(f finding) bool { return f.leak && !f.duplicate },
		},
		"Stuck": {
			reason:  "A process that never removes the finalizer is stuck.",
			columns: deletion(func(*process, *v1alpha1.Database) error { return nil }),
			life:    "delete/sync/token/" + undisturbed,
			want:    func(f finding) bool { return f.stuck && !f.leak },
		},
		"NameLost": {
			reason: "A name that isn't the resource's is noticed although all else looks fine.",
			columns: broken(func(p *process, inner reconcile.Reconciler) reconcile.Reconciler {
				return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					if d, err := p.world.object(); err == nil && d != nil && d.Status.AtProvider.State == string(cloud.StateAvailable) {
						meta.SetExternalName(d, "database-0815")
						return reconcile.Result{}, p.world.server.Admin().Update(ctx, d)
					}
					return inner.Reconcile(ctx, req)
				})
			}),
			life: "create/sync/token/" + undisturbed,
			want: func(f finding) bool { return f.nameLost },
		},
		"NoRest": {
			reason: "What never comes to rest is stuck.",
			columns: broken(func(_ *process, inner reconcile.Reconciler) reconcile.Reconciler {
				return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					_, err := inner.Reconcile(ctx, req)
					return reconcile.Result{Requeue: true}, err
				})
			}),
			life: "create/sync/token/" + undisturbed,
			want: func(f finding) bool { return f.stuck },
		},
		"RightAtTheNextPoll": {
			reason:  "A poll that is due is waited for, although nothing happens until then.",
			columns: broken(asleep(pollInterval)),
			life:    "create/sync/token/" + undisturbed,
			want:    func(f finding) bool { return !f.bad() },
		},
		"RightLater": {
			reason:  "What only a later look than a poll puts right is stuck.",
			columns: broken(asleep(pollInterval + time.Second)),
			life:    "create/sync/token/" + undisturbed,
			want:    func(f finding) bool { return f.stuck },
		},
		"Panic": {
			reason: "A reconciler that panics doesn't bring the harness down.",
			columns: broken(func(_ *process, inner reconcile.Reconciler) reconcile.Reconciler {
				return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					panic("ouch")
				})
			}),
			life: "create/sync/token/" + undisturbed,
			want: func(f finding) bool { return f.stuck && f.err == nil },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got finding
			if p, err := parse(tc.life, graftSide, tc.columns); err == nil {
				got = p.lead(t, environment{seed: 1}, nil)
			} else {
				got = leadAt(t, tc.life, graftSide, tc.columns, 1)
			}
			if !tc.want(got) {
				t.Errorf("\n%s\ngot: %+v", tc.reason, got)
			}
		})
	}
}

func TestCommand(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		want   int
		out    string
		errs   string
	}{
		"Help":      {reason: "Help is no failure.", args: []string{"-h"}, want: exitOK, out: "Usage: torture"},
		"BadReplay": {reason: "A second fault is at a later step.", args: []string{"-replay", "create/sync/token/crash-after/7/api-lost/7"}, want: exitUsage, errs: `a step is a number from 8, not "7"`},
		"OneFault": {
			reason: "One fault is tried at as many points as are asked for.",
			args:   []string{"-only", "update/sync/token", "-fault", "stall", "-sample", "2"}, want: exitOK, out: "all",
		},
		"Replay": {
			reason: "A replay shows the steps, here with two faults.",
			args:   []string{"-replay", "delete/sync/token/crash-after/7/api-lost/12"}, want: exitOK, out: "cloud Delete",
		},
		"ReplayOfACrash": {
			reason: "A crash is the same whenever it is replayed.",
			args:   []string{"-replay", "create/sync/nothing/crash-after/6", "-seed", "3"}, want: exitOK, out: "stopped, and says so",
		},
		"ReplayOfATracker": {
			reason: "And what a tracker does.",
			args:   []string{"-replay", "delete-in-create/async/finder/failover/9", "-seed", "3"}, want: exitOK, out: "fine after",
		},
		"ReplayBad": {
			reason: "A replay of what went badly fails.",
			args:   []string{"-replay", "create/async/nothing/crash-after/10", "-side", upstreamSide, "-seed", "2"}, want: exitFailed, out: "external resources were created",
		},
		"TooFewSteps": {
			reason: "A fault that didn't strike proves nothing.",
			args:   []string{"-replay", "delete/sync/token/crash-after/99"}, want: exitFailed, out: "fewer than 99 steps",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out, errs, again bytes.Buffer
			if got := command(t, tc.args, &out, &errs); got != tc.want {
				t.Errorf("\n%s\nexit status: want %d, got %d\n%s%s", tc.reason, tc.want, got, out.String(), errs.String())
			}
			if !strings.Contains(out.String(), tc.out) || !strings.Contains(errs.String(), tc.errs) {
				t.Errorf("\n%s\nwant output with %q and %q, got:\n%s%s", tc.reason, tc.out, tc.errs, out.String(), errs.String())
			}

			// What isn't the same once more can't be looked at again.
			if _ = command(t, tc.args, &again, &errs); tc.args[0] == "-replay" && again.String() != out.String() {
				t.Errorf("\n%s\n-first, +second:\n%s", tc.reason, cmp.Diff(out.String(), again.String()))
			}
		})
	}
}

func TestTable(t *testing.T) {
	st := stories()[0]
	cs := columns()
	at := func(c column, k clientKind, n int) point {
		return point{story: st, column: c, kind: k, at: []disturbance{{fault: faults()[0], step: n}}}
	}
	vs := []verdictOf{
		{point: at(cs[0], tokenClient, 1), finding: finding{duplicate: true, leak: true, reconciles: 12, why: []string{"2 external resources were created"}}},
		{point: at(cs[0], tokenClient, 2), finding: finding{stopped: true}},
		{point: at(cs[1], tokenClient, 1), finding: finding{reconciles: 3}},
		{point: at(cs[1], namedClient, 1), finding: finding{stopped: true, why: []string{"stopped: unknown"}}},
	}
	r := tally(vs)
	var out bytes.Buffer
	r.print(&out)
	r.explain(&out, environment{seed: 5}, false)
	for _, want := range []string{
		"create sync token 2 : 1 1 : 0 1 : 0 0 : 0 0 : 0 1 : 0 0 : 0 12 : 3",
		"sync name - : 1 - : 0 - : 0 - : 0 - : 0 - : 1 - : 0 - : 0",
		"all 2 : 2 1 : 0 1 : 0 0 : 0 0 : 0 1 : 1 0 : 0 12 : 3",
		"go run ./torture -replay create/sync/name/crash-before/1 -seed 5",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("want %q in:\n%s", want, out.String())
		}
	}
	if r.asExpected(true) {
		t.Errorf("asExpected(): Graft asked a person who need not be asked: want false")
	}
	if !tally(vs[:3]).asExpected(true) {
		t.Errorf("asExpected(): upstream fails, Graft doesn't: want true")
	}
	if tally(vs[2:3]).asExpected(true) {
		t.Errorf("asExpected(): upstream doesn't fail: want false")
	}
	for _, l := range strings.Split(out.String(), "\n") {
		if strings.Contains(l, " : ") && len(l) > 120 {
			t.Errorf("a row has %d characters: %s", len(l), l)
		}
	}
}
