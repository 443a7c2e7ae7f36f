package asyncstate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/testkit"
)

// What external clients with goroutines of their own may do.
func TestOwnGoroutines(t *testing.T) {
	cases := map[string]struct {
		reason string
		plain  bool
		act    func(t *testing.T, w *world, p *process, ctx context.Context, mg resource.Managed) error
		panics bool
		want   xpv2.ConditionReason // of Synced
		calls  int
		name   string
	}{
		"Begun": {
			reason: "The operation goes on when Create has returned.",
			act: func(_ *testing.T, _ *world, p *process, ctx context.Context, mg resource.Managed) error {
				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				if err != nil {
					return err
				}

				go func() {
					_ = sleep(op.Context(), time.Minute)
					_ = op.SetExternalName(op.Context(), "late")
					op.End(nil)
					op.End(errQuota)
				}()

				return nil
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "late",
		},
		"Inline": {
			reason: "There was nothing to wait for.",
			act: func(_ *testing.T, _ *world, _ *process, _ context.Context, mg resource.Managed) error {
				meta.SetExternalName(mg, "now")
				return nil
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"InlineUnderUpstream": {
			reason: "As above, without Graft's reconciler.",
			plain:  true,
			act: func(_ *testing.T, _ *world, _ *process, _ context.Context, mg resource.Managed) error {
				meta.SetExternalName(mg, "now")
				return nil
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"ErrorAfterBegin": {
			reason: "Nothing goes on then, and it failed; the next attempt is made.",
			act: func(_ *testing.T, w *world, p *process, ctx context.Context, mg resource.Managed) error {
				if _, err := p.tracker.Begin(ctx, mg, asyncstate.Create); err != nil {
					return err
				}

				if w.cloud.count(asyncstate.Create) == 1 {
					return errQuota
				}

				op, err := p.tracker.Begin(ctx, mg, asyncstate.Create)
				if op != nil || !errors.Is(err, asyncstate.ErrRunning) {
					return errors.New("begun twice")
				}

				return errQuota
			},
			want: xpv2.ReasonReconcileError, calls: 3,
		},
		"WrongType": {
			reason: "A create is no update.",
			act: func(t *testing.T, _ *world, p *process, ctx context.Context, mg resource.Managed) error {
				t.Helper()

				if _, err := p.tracker.Begin(ctx, mg, asyncstate.Update); !errors.Is(err, asyncstate.ErrNotInOperation) {
					t.Errorf("got %v", err)
				}

				if _, err := p.tracker.Begin(context.Background(), mg, asyncstate.Create); !errors.Is(err, asyncstate.ErrNotInOperation) {
					t.Errorf("got %v", err)
				}

				meta.SetExternalName(mg, "now")

				return nil
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"TooLate": {
			reason: "When Create has returned, what came of it is settled.",
			act: func(t *testing.T, _ *world, p *process, ctx context.Context, mg resource.Managed) error {
				t.Helper()

				late, _ := mg.DeepCopyObject().(resource.Managed)

				time.AfterFunc(time.Second, func() {
					if _, err := p.tracker.Begin(ctx, late, asyncstate.Create); !errors.Is(err, asyncstate.ErrNotInOperation) {
						t.Errorf("got %v", err)
					}
				})

				meta.SetExternalName(mg, "now")

				return nil
			},
			want: xpv2.ReasonReconcileSuccess, calls: 1, name: "now",
		},
		"UnknownAndNotStored": {
			reason: "That nobody knows what was made can't be stored at once. It is not made again.",
			act: func(_ *testing.T, w *world, p *process, _ context.Context, _ resource.Managed) error {
				n := 30
				p.faults(func(verb string, o client.Object) error {
					if n--; n >= 0 && verb != testkit.StatusUpdate {
						return away(verb, o)
					}

					return nil
				}, nil)

				return asyncstate.ErrOutcomeUnknown
			},
			want: xpv2.ReasonReconcileError, calls: 1,
		},
		"Panic": {
			reason: "Nobody knows what was made. It is not made again.",
			act: func(*testing.T, *world, *process, context.Context, resource.Managed) error {
				panic("oh")
			},
			panics: true, want: xpv2.ReasonReconcileError, calls: 1,
		},
		"PanicAfterBegin": {
			reason: "As above.",
			act: func(_ *testing.T, _ *world, p *process, ctx context.Context, mg resource.Managed) error {
				_, _ = p.tracker.Begin(ctx, mg, asyncstate.Create)
				panic("oh")
			},
			panics: true, want: xpv2.ReasonReconcileError, calls: 1,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var (
					w *world
					p *process
				)

				w = acting(t, false, func(ctx context.Context, mg resource.Managed) error {
					w.cloud.set(func(c *fakeCloud) { c.calls[asyncstate.Create]++ })
					return tc.act(t, w, p, ctx, mg)
				})
				w.plain = tc.plain
				w.options = []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines(), asyncstate.WithBackoff(9*time.Minute, 9*time.Minute)}
				p = w.start()
				defer w.end()

				func() {
					defer func() {
						if r := recover(); (r != nil) != tc.panics {
							t.Errorf("\n%s\npanicked: %v", tc.reason, r)
						}
					}()

					reconciled(t, p, "b")
				}()

				for range 25 {
					pass(time.Minute)

					if meta.GetExternalName(w.get("b")) == "" {
						_, _ = p.reconcile("b")
					}
				}

				b := w.get("b")
				if n := w.cloud.count(asyncstate.Create); n != tc.calls || reason(b, xpv2.TypeSynced) != tc.want || meta.GetExternalName(b) != tc.name {
					t.Errorf("\n%s\n%d calls, want %d: %s", tc.reason, n, tc.calls, describe(b))
				}
			})
		})
	}
}
