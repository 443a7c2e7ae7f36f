package reconciler_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A rig is a reconciler of composite resources, and what it tells.
type rig struct {
	reconcile.Reconciler

	c       *cluster
	now     time.Time
	events  *recorder
	metrics *reconciler.Metrics
	called  int
	passes  int
	opts    []reconciler.Option
}

// newRig returns a rig with an object's server.
func newRig(t *testing.T, c *cluster, o client.Object, opts ...reconciler.Option) *rig {
	t.Helper()

	r := &rig{c: c, now: o.GetDeletionTimestamp().Add(time.Minute), events: &recorder{}, metrics: reconciler.NewMetrics(), opts: opts}
	r.restart()

	return r
}

// restart the process: what it had in memory is lost.
func (r *rig) restart() {
	r.Reconciler = reconciler.New(r.c, composites, reader(&r.passes), append([]reconciler.Option{
		reconciler.WithClock(func() time.Time { return r.now }),
		reconciler.WithoutWait(),
		reconciler.WithRecorder(r.events),
		reconciler.WithMetrics(r.metrics),
		reconciler.WithLiveReader(r.c.server),
	}, r.opts...)...)
}

func (r *rig) deadline(d time.Duration) reconciler.Option {
	return reconciler.WithDeletionDeadline(d, func(context.Context, client.Object) { r.called++ })
}

// toldOf counts the events of a reason.
func (r *rig) toldOf(reason event.Reason) int {
	n := 0

	for _, e := range r.events.events {
		if e.Reason == reason {
			n++
		}
	}

	return n
}

const exceeded = "graft_deletion_deadline_exceeded_total"

func TestDeadline(t *testing.T) {
	stillThere := "The deadline for the deletion was T. 0 of 1 dependents deleted, 0%. Thing/a since T: held by f."

	cases := map[string]struct {
		reason string

		// run reconciles until the deadline has passed, and after.
		run  func(t *testing.T, r *rig, o *unstructured.Unstructured)
		told int
		want said
	}{
		"NotYet": {
			reason: "Before the deadline nothing is reported.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				t.Helper()
				r.now = o.GetDeletionTimestamp().Add(time.Hour - time.Nanosecond)
				pass(t, r, o)
			},
			want: said{"True", "WaitingForDependents", strings.TrimPrefix(stillThere, "The deadline for the deletion was T. ")},
		},
		"Passed": {
			reason: "When it has passed, everybody is told once.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				t.Helper()
				pass(t, r, o)

				r.now = o.GetDeletionTimestamp().Add(time.Hour)

				for range 20 {
					pass(t, r, o)
				}
			},
			told: 1,
			want: said{"True", "DeadlineExceeded", stillThere},
		},
		"Late": {
			reason: "A process that starts after the deadline tells.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				t.Helper()
				r.now = o.GetDeletionTimestamp().Add(2 * time.Hour)
				pass(t, r, o)
				pass(t, r, o)
			},
			told: 1,
			want: said{"True", "DeadlineExceeded", stillThere},
		},
		"Restarts": {
			reason: "A process that starts after it was told doesn't tell again.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				t.Helper()
				r.now = o.GetDeletionTimestamp().Add(2 * time.Hour)

				for range 3 {
					pass(t, r, o)
					r.restart()
				}
			},
			told: 1,
			want: said{"True", "DeadlineExceeded", stillThere},
		},
		"StaleCache": {
			reason: "A stale cache does not make it be reported again.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				t.Helper()
				pass(t, r, o)
				r.c.stale[client.ObjectKeyFromObject(o)] = r.c.read(t, o)
				r.now = o.GetDeletionTimestamp().Add(2 * time.Hour)
				pass(t, r, o)
				pass(t, r, o)
				r.restart()
				pass(t, r, o)
				clear(r.c.stale)
				pass(t, r, o)
			},
			told: 1,
			want: said{"True", "DeadlineExceeded", stillThere},
		},
		"Conflict": {
			reason: "Neither does a conflict.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				t.Helper()
				pass(t, r, o)
				r.now = o.GetDeletionTimestamp().Add(2 * time.Hour)

				n := 0
				r.c.fail = func(verb string, _ client.Object, after bool) error {
					if n++; verb == "status" && !after && n < 5 {
						r.c.change(t, o, annotated("n", strings.Repeat("n", n)))
					}

					return nil
				}

				pass(t, r, o)
				pass(t, r, o)
			},
			told: 1,
			want: said{"True", "DeadlineExceeded", stillThere},
		},
		"AnswerLost": {
			reason: "If the answer to the write is lost, it is still reported.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				t.Helper()
				pass(t, r, o)
				r.now = o.GetDeletionTimestamp().Add(2 * time.Hour)

				r.c.fail = func(verb string, _ client.Object, after bool) error {
					if verb == "status" && after {
						return kerrors.NewTimeoutError("lost", 1)
					}

					return nil
				}

				if _, err := r.Reconcile(context.Background(), requestFor(o)); err == nil {
					t.Error("want an error")
				}

				r.c.fail = nil

				pass(t, r, o)
				pass(t, r, o)
			},
			told: 1,
			want: said{"True", "DeadlineExceeded", stillThere},
		},
		"SomebodyElseTold": {
			reason: "What another process said meanwhile is not told again.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				t.Helper()
				pass(t, r, o)
				r.now = o.GetDeletionTimestamp().Add(2 * time.Hour)
				u := r.c.read(t, o)
				r.c.stale[client.ObjectKeyFromObject(o)] = u.DeepCopy()
				being(reconciler.Deleting(r.now, reconciler.ReasonDeadlineExceeded, "Told.")...)(u)

				if err := r.c.server.Status().Update(context.Background(), u); err != nil {
					t.Fatal(err)
				}

				pass(t, r, o)
				clear(r.c.stale)
				pass(t, r, o)
			},
			want: said{"True", "DeadlineExceeded", stillThere},
		},
		"Forbidden": {
			reason: "Without permission to say so on the object, it is told once.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				t.Helper()
				pass(t, r, o)
				r.now = o.GetDeletionTimestamp().Add(2 * time.Hour)
				r.c.fail = func(verb string, _ client.Object, _ bool) error {
					if verb == "status" {
						return kerrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no"))
					}

					return nil
				}

				pass(t, r, o)
				pass(t, r, o)
			},
			told: 1,
			want: said{"True", "WaitingForDependents", strings.TrimPrefix(stillThere, "The deadline for the deletion was T. ")},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dep := of(things, "", "a", ownedBy(xr()), dying, held("f"))
			o := xr(dep)

			r := newRig(t, newCluster(o, dep), o, reconciler.WithDependents(reconciler.ComposedResources()))
			r.opts = append(r.opts, r.deadline(time.Hour))
			r.restart()

			tc.run(t, r, o)

			got := []int{r.toldOf("DeletionDeadlineExceeded"), r.called, counter(t, r.metrics, exceeded)}
			if diff := cmp.Diff([]int{tc.told, tc.told, tc.told}, got); diff != "" {
				t.Errorf("\n%s\nevents, calls, metric: -want, +got:\n%s", tc.reason, diff)
			}

			if diff := cmp.Diff(tc.want, r.c.says(t, o, reconciler.TypeDeleting)); diff != "" {
				t.Errorf("\n%s\nDeleting: -want, +got:\n%s", tc.reason, diff)
			}

			if diff := cmp.Diff([]string{"example.org/f"}, r.c.read(t, o).GetFinalizers()); diff != "" {
				t.Errorf("\nA deadline should orphan nothing: -want, +got:\n%s", diff)
			}
		})
	}
}
