//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const token = "valid"

// A deletion is a fleet of which every object was available, is deleted, and
// can't go yet.
type deletion struct {
	server server
	world  *cloud.Cloud
	set    setup
	fleet  []sample.Instance

	// before counts the reconciles that ended before the deletion.
	before int

	// letGo ends what SlowExternalDelete holds.
	letGo func()
}

// reconciled waits until each object was reconciled so often since its deletion,
// as far as to connect.
func (d *deletion) reconciled(t *testing.T, n int) {
	t.Helper()

	eventually(t, fmt.Sprintf("%d reconciles of the deleted objects", n*len(d.fleet)), func() (bool, string) {
		return d.set.connectors.disconnects()-d.before >= n*len(d.fleet), ""
	})
}

// synced waits until every object has a Synced condition of this reason.
func (d *deletion) synced(t *testing.T, reason xpv2.ConditionReason) {
	t.Helper()
	d.server.until(t, "all show Synced/"+string(reason), d.fleet, func(mg sample.Instance) bool {
		return mg.GetCondition(xpv2.TypeSynced).Reason == reason
	})
}

// Deleted managed resources that can't go, for as long as it takes: what does a
// user see?
func TestSilentDeletion(t *testing.T) {
	type shown struct{ Ready, Deleting string }

	// shownBy is what upstream shows, which has no Deleting condition.
	shownBy := func(ready string) shown { return shown{Ready: ready, Deleting: "-"} }
	because := func(r xpv2.ConditionReason) shown {
		return shown{Ready: "False/Deleting", Deleting: "True/" + string(r)}
	}

	cases := map[string]struct {
		reason string
		// arrange what will hold the objects that are there and available.
		arrange func(t *testing.T, d *deletion)
		// wait until upstream had its chance to say something.
		wait func(t *testing.T, d *deletion)
		// release what holds the objects.
		release func(t *testing.T, d *deletion)

		upstream, graft shown
		// message is part of what Graft's conditions say.
		message string
	}{
		"SlowExternalDelete": {
			reason: "While the call that deletes the external resource runs.",
			arrange: func(t *testing.T, d *deletion) {
				hold := make(chan struct{})
				d.letGo = sync.OnceFunc(func() { close(hold) })
				t.Cleanup(d.letGo)
				d.world.SetHooks(cloud.Hooks{Before: func(ctx context.Context, c cloud.Call) error {
					if c.Op != cloud.OpDelete {
						return nil
					}

					select {
					case <-hold:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}})
			},
			wait: func(t *testing.T, d *deletion) {
				eventually(t, "all external resources are being deleted", func() (bool, string) {
					n := d.world.Counts()[cloud.OpDelete]
					return n >= len(d.fleet), fmt.Sprintf("%d are", n)
				})
			},
			release:  func(_ *testing.T, d *deletion) { d.letGo() },
			upstream: shownBy("True/Available"),
			graft:    because(reconciler.ReasonExternalDeleteRequested),
			message:  "is being deleted",
		},
		"OtherFinalizer": {
			reason: "While another controller's finalizer is there.",
			arrange: func(t *testing.T, d *deletion) {
				d.server.all(t, "Update()", d.fleet, func(mg sample.Instance) error {
					got := read(t, d.server, mg)
					meta.AddFinalizer(got, otherFinalizer)

					return d.server.Update(t.Context(), got)
				})
			},
			wait: func(t *testing.T, d *deletion) { d.reconciled(t, 10) },
			release: func(t *testing.T, d *deletion) {
				d.server.merge(t, `{"metadata":{"finalizers":["finalizer.managedresource.crossplane.io"]}}`, d.fleet...)
			},
			upstream: shownBy("True/Available"),
			graft:    because(reconciler.ReasonWaitingForFinalizers),
			message:  otherFinalizer,
		},
		"BrokenCredentials": {
			reason:   "While the provider can't log in.",
			arrange:  func(_ *testing.T, d *deletion) { d.world.SetToken("rotated") },
			wait:     func(t *testing.T, d *deletion) { d.synced(t, xpv2.ReasonReconcileError) },
			release:  func(_ *testing.T, d *deletion) { d.world.SetToken(token) },
			upstream: shownBy("True/Available"),
			graft:    because(reconciler.ReasonConnectFailed),
			message:  "see the Synced condition",
		},
		"ObserveFails": {
			reason: "While the external system doesn't answer.",
			arrange: func(_ *testing.T, d *deletion) {
				d.world.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
					if c.Op == cloud.OpGet {
						return errors.New("service unavailable")
					}

					return nil
				}})
			},
			wait:     func(t *testing.T, d *deletion) { d.synced(t, xpv2.ReasonReconcileError) },
			release:  func(_ *testing.T, d *deletion) { d.world.SetHooks(cloud.Hooks{}) },
			upstream: shownBy("True/Available"),
			graft:    because(reconciler.ReasonObserveFailed),
			message:  "could not be observed",
		},
		"ExternalDeleteFails": {
			reason: "While the external system refuses to delete. Upstream says Deleting here, not why.",
			arrange: func(_ *testing.T, d *deletion) {
				d.world.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
					if c.Op == cloud.OpDelete {
						return errors.New("protected")
					}

					return nil
				}})
			},
			wait:     func(t *testing.T, d *deletion) { d.synced(t, xpv2.ReasonReconcileError) },
			release:  func(_ *testing.T, d *deletion) { d.world.SetHooks(cloud.Hooks{}) },
			upstream: shownBy("False/Deleting"),
			graft:    because(reconciler.ReasonExternalDeleteFailed),
			message:  "could not be deleted",
		},
		"IncompleteCreate": {
			reason: "While the outcome of a create is unknown.",
			arrange: func(t *testing.T, d *deletion) {
				d.server.annotate(t, meta.AnnotationKeyExternalCreatePending, time.Now().Add(time.Hour).Format(time.RFC3339), d.fleet...)
			},
			wait: func(t *testing.T, d *deletion) { d.synced(t, xpv2.ReasonReconcileError) },
			release: func(t *testing.T, d *deletion) {
				// That the annotation goes is no event for a provider. That a
				// reconcile is asked for is one.
				d.server.merge(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:null,%q:"now"}}}`, meta.AnnotationKeyExternalCreatePending, meta.AnnotationKeyReconcileRequestedAt), d.fleet...)
			},
			upstream: shownBy("False/Creating"),
			graft:    because(reconciler.ReasonCreateResultUnknown),
			message:  meta.AnnotationKeyExternalCreatePending,
		},
		"Paused": {
			reason: "While reconciliation is paused.",
			arrange: func(t *testing.T, d *deletion) {
				d.server.annotate(t, meta.AnnotationKeyReconciliationPaused, "true", d.fleet...)
			},
			wait: func(t *testing.T, d *deletion) { d.synced(t, xpv2.ReasonReconcilePaused) },
			release: func(t *testing.T, d *deletion) {
				d.server.merge(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, meta.AnnotationKeyReconciliationPaused), d.fleet...)
			},
			upstream: shownBy("True/Available"),
			graft:    because(reconciler.ReasonBlockedByPause),
			message:  meta.AnnotationKeyReconciliationPaused,
		},
	}

	for name, tc := range cases {
		for _, f := range []flavour{upstream, graft} {
			t.Run(name+"/"+f.name, func(t *testing.T) {
				s := newServer(t)
				world := cloud.New(cloud.Options{Token: token})
				d := &deletion{
					server: s,
					world:  world,
					set:    setup{connectors: syncConnectors(world, sample.WithToken(token))},
					fleet:  fleet("silent", 2),
				}

				s.create(t, d.fleet...)
				start(t, f, d.set)
				s.until(t, "all show Available", d.fleet, isAvailable)

				tc.arrange(t, d)
				d.before = d.set.connectors.disconnects()
				s.remove(t, d.fleet...)
				tc.wait(t, d)

				show := func(mg sample.Instance) shown {
					return shown{Ready: condition(mg, xpv2.TypeReady), Deleting: condition(mg, reconciler.TypeDeleting)}
				}
				want := tc.upstream

				if f.graft {
					want = tc.graft
					// What was the last thing to happen may still be on its way.
					s.until(t, "all say why", d.fleet, func(mg sample.Instance) bool { return show(mg) == want })
				}

				for _, mg := range s.list(t.Context(), t) {
					if diff := cmp.Diff(want, show(mg)); diff != "" {
						t.Errorf("\n%s\n%T: -want, +got:\n%s", tc.reason, mg, diff)
					}

					for _, ct := range []xpv2.ConditionType{xpv2.TypeReady, reconciler.TypeDeleting} {
						if c := mg.GetCondition(ct); f.graft && !strings.Contains(c.Message, tc.message) {
							t.Errorf("\n%s\n%T: want a message of %s with %q, got %q", tc.reason, mg, ct, tc.message, c.Message)
						}
					}
				}

				tc.release(t, d)
				s.untilGone(t)

				if left := world.Inventory(); len(left) != 0 {
					t.Errorf("\n%s\nwant no external resource left, got %v", tc.reason, left)
				}
			})
		}
	}
}
