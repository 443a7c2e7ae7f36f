package reconciler_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const exceeded = "graft_deletion_deadline_exceeded_total"

func TestDeadline(t *testing.T) {
	waits := said{"True", "WaitingForDependents", "0 of 1 dependents deleted, 0%. Thing/a since T: held by f."}
	late := said{"True", "DeadlineExceeded", "The deadline for the deletion was T. " + waits.Message}

	cases := map[string]struct {
		reason string

		// run reconciles after the deadline has passed, which is in the future when
		// the object is reconciled for the first time.
		run  func(t *testing.T, r *rig, o *unstructured.Unstructured)
		told int
		want said
	}{
		"NotYet": {
			reason: "Before the deadline nothing is reported.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				r.now = o.GetDeletionTimestamp().Add(time.Hour - time.Nanosecond)
				pass(t, r, o)
			},
			want: waits,
		},
		"Passed": {
			reason: "When it has passed, it is reported once.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				r.now = o.GetDeletionTimestamp().Add(time.Hour)

				for range 3 {
					pass(t, r, o)
				}
			},
			told: 1,
			want: late,
		},
		"Restarts": {
			reason: "A process that starts after it was reported doesn't report it again.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				for range 3 {
					r.restart()
					pass(t, r, o)
				}
			},
			told: 1,
			want: late,
		},
		"StaleCache": {
			reason: "A stale cache does not make it be reported again.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				r.c.freeze(t, o)
				pass(t, r, o)
				pass(t, r, o)
				r.restart()
				pass(t, r, o)
				r.c.thaw()
				pass(t, r, o)
			},
			told: 1,
			want: late,
		},
		"Conflict": {
			reason: "Neither does a conflict.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
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
			want: late,
		},
		"AnswerLost": {
			reason: "If the answer to the write is lost, it is still reported.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				r.c.fail = func(verb string, _ client.Object, after bool) error {
					if verb != "status" || !after {
						return nil
					}

					r.c.fail = nil

					return kerrors.NewTimeoutError("lost", 1)
				}

				if _, err := r.Reconcile(context.Background(), requestFor(o)); err == nil {
					t.Error("want an error")
				}

				pass(t, r, o)
				pass(t, r, o)
			},
			told: 1,
			want: late,
		},
		"AnotherProcess": {
			reason: "What another process has reported meanwhile is not reported again.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				r.c.freeze(t, o)

				u := r.c.read(t, o)
				being(reconciler.Deleting(r.now, reconciler.ReasonDeadlineExceeded, "Told.")...)(u)

				if err := r.c.server.Status().Update(context.Background(), u); err != nil {
					t.Fatal(err)
				}

				pass(t, r, o)
				r.c.thaw()
				pass(t, r, o)
			},
			want: late,
		},
		"Forbidden": {
			reason: "Without permission to write it on the object, it is reported once.",
			run: func(t *testing.T, r *rig, o *unstructured.Unstructured) {
				r.c.fail = refuses("status", kerrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no")))
				pass(t, r, o)
				pass(t, r, o)
			},
			told: 1,
			want: waits,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dep := of(things, "", "a", ownedBy(xr()), dying, held("f"))
			o := xr(dep)

			r := newRig(t, newCluster(o, dep), o, reconciler.WithDependents(reconciler.ComposedResources()))
			r.opts = append(r.opts, r.deadline(time.Hour))
			r.restart()
			pass(t, r, o)

			r.now = o.GetDeletionTimestamp().Add(2 * time.Hour)

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
