package reconciler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	orphaned = "graft_deletion_orphaned_total"
	mine     = "example.org/mine"
	theirs   = "example.org/theirs"
)

// A lines logger keeps what it is told.
type lines struct {
	logging.Logger

	all *[]string
}

func (l lines) Info(msg string, kv ...any) { *l.all = append(*l.all, msg+" "+fmt.Sprint(kv...)) }

func lostAnswers(verb string, n *int) func(string, client.Object, bool) error {
	return func(v string, _ client.Object, after bool) error {
		if v == verb && after && *n > 0 {
			*n--
			return kerrors.NewTimeoutError("lost", 1)
		}

		return nil
	}
}

func TestForceOrphan(t *testing.T) {
	wish := annotated(reconciler.AnnotationKeyForceOrphan, "uid-of-x")
	alive := func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(nil) }
	option := reconciler.WithForceOrphan(mine, "example.org/other")

	type want struct {
		// Finalizers that are left; Gone if the object is.
		Finalizers []string
		Gone       bool

		// Trails is how many events and counts there are.
		Trails int

		// Passes is how often the inner reconciler saw the object, and Failures
		// how many of the 3 reconciles failed.
		Passes, Failures int

		Reason string
	}

	cases := map[string]struct {
		reason string
		mod    []func(*unstructured.Unstructured)
		opts   []reconciler.Option
		fail   func(t *testing.T, c *cluster) func(string, client.Object, bool) error
		want   want
	}{
		"All": {
			reason: "With everything that it takes the finalizer goes, and with it the object, which the inner reconciler doesn't see.",
			mod:    []func(*unstructured.Unstructured){wish},
			opts:   []reconciler.Option{option},
			want:   want{Gone: true, Trails: 1},
		},
		"NoConditions": {
			reason: "An object without conditions can be orphaned too.",
			mod:    []func(*unstructured.Unstructured){wish, func(u *unstructured.Unstructured) { u.Object["status"] = "odd" }},
			opts:   []reconciler.Option{option},
			want:   want{Gone: true, Trails: 1},
		},
		"Paused": {
			reason: "So can one that is paused.",
			mod:    []func(*unstructured.Unstructured){wish, annotated(meta.AnnotationKeyReconciliationPaused, "true")},
			opts:   []reconciler.Option{option},
			want:   want{Gone: true, Trails: 1},
		},
		"NoOption": {
			reason: "Not without the option.",
			mod:    []func(*unstructured.Unstructured){wish},
			want:   want{Finalizers: []string{mine}, Passes: 3, Reason: "DeletionRequested"},
		},
		"NotDeleting": {
			reason: "Not unless it is being deleted.",
			mod:    []func(*unstructured.Unstructured){wish, alive},
			opts:   []reconciler.Option{option},
			want:   want{Finalizers: []string{mine}, Passes: 3},
		},
		"NoAnnotation": {
			reason: "Not without being asked.",
			opts:   []reconciler.Option{option},
			want:   want{Finalizers: []string{mine}, Passes: 3, Reason: "DeletionRequested"},
		},
		"WrongUID": {
			reason: "Not if another object was meant.",
			mod:    []func(*unstructured.Unstructured){annotated(reconciler.AnnotationKeyForceOrphan, "uid-of-y")},
			opts:   []reconciler.Option{option},
			want:   want{Finalizers: []string{mine}, Passes: 3, Reason: "DeletionRequested"},
		},
		"True": {
			reason: "Not if just anything was written.",
			mod:    []func(*unstructured.Unstructured){annotated(reconciler.AnnotationKeyForceOrphan, "true")},
			opts:   []reconciler.Option{option},
			want:   want{Finalizers: []string{mine}, Passes: 3, Reason: "DeletionRequested"},
		},
		"NoUID": {
			reason: "Not if there is no UID to compare.",
			mod:    []func(*unstructured.Unstructured){annotated(reconciler.AnnotationKeyForceOrphan, ""), func(u *unstructured.Unstructured) { u.SetUID("") }},
			opts:   []reconciler.Option{option},
			want:   want{Finalizers: []string{mine}, Passes: 3, Reason: "DeletionRequested"},
		},
		"NotListed": {
			reason: "Not if none of the finalizers was listed.",
			mod:    []func(*unstructured.Unstructured){wish, held(theirs)},
			opts:   []reconciler.Option{option},
			want:   want{Finalizers: []string{theirs}, Passes: 3, Reason: "DeletionRequested"},
		},
		"DeadlineAlone": {
			reason: "Not because a deadline has passed.",
			opts:   []reconciler.Option{option, reconciler.WithDeletionDeadline(time.Second, nil)},
			want:   want{Finalizers: []string{mine}, Passes: 3, Reason: "DeadlineExceeded"},
		},
		"Foreign": {
			reason: "Finalizers that were not listed stay, and the condition goes on to say what happened.",
			mod:    []func(*unstructured.Unstructured){wish, held(theirs, mine)},
			opts:   []reconciler.Option{option, reconciler.WithDeletionDeadline(time.Second, nil)},
			want:   want{Finalizers: []string{theirs}, Trails: 1, Passes: 3, Reason: "ForceOrphaned"},
		},
		"FinalizersChange": {
			reason: "If the finalizers change meanwhile nothing is removed that was not seen. It is tried again.",
			mod:    []func(*unstructured.Unstructured){wish},
			opts:   []reconciler.Option{option},
			fail: func(t *testing.T, c *cluster) func(string, client.Object, bool) error {
				t.Helper()

				n := 0

				return func(verb string, o client.Object, after bool) error {
					if n++; verb == "update" && !after && n < 10 {
						n = 10
						// No API server would allow to add one now, but may
						// to remove one, which is the same to us.
						c.change(t, of(composites, "", "x"), func(u *unstructured.Unstructured) { u.SetFinalizers([]string{mine, "example.org/other"}) })
					}

					return nil
				}
			},
			want: want{Gone: true, Trails: 1, Failures: 1},
		},
		"WishWithdrawn": {
			reason: "A wish that was withdrawn meanwhile is not fulfilled.",
			mod:    []func(*unstructured.Unstructured){wish},
			opts:   []reconciler.Option{option},
			fail: func(t *testing.T, c *cluster) func(string, client.Object, bool) error {
				t.Helper()

				return func(verb string, _ client.Object, after bool) error {
					if verb == "update" && !after {
						c.change(t, of(composites, "", "x"), func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
					}

					return nil
				}
			},
			want: want{Finalizers: []string{mine}, Passes: 2, Failures: 1, Reason: "DeletionRequested"},
		},
		"WishWithdrawnEarly": {
			reason: "Neither is one that was withdrawn before it was announced.",
			mod:    []func(*unstructured.Unstructured){wish},
			opts:   []reconciler.Option{option},
			fail: func(t *testing.T, c *cluster) func(string, client.Object, bool) error {
				t.Helper()

				n := 0

				return func(verb string, _ client.Object, after bool) error {
					if verb != "status" || after {
						return nil
					}

					// The first one announces the deletion.
					if n++; n == 2 {
						c.change(t, of(composites, "", "x"), func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
					}

					return nil
				}
			},
			want: want{Finalizers: []string{mine}, Passes: 3, Reason: "DeletionRequested"},
		},
		"Forbidden": {
			reason: "Without permission the deletion goes on.",
			mod:    []func(*unstructured.Unstructured){wish},
			opts:   []reconciler.Option{option},
			fail: func(*testing.T, *cluster) func(string, client.Object, bool) error {
				return func(verb string, _ client.Object, _ bool) error {
					if verb == "update" {
						return kerrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no"))
					}

					return nil
				}
			},
			want: want{Finalizers: []string{mine}, Passes: 3, Reason: "ForceOrphaned"},
		},
		"ServerDown": {
			reason: "What fails is tried again, and nothing is said to have happened.",
			mod:    []func(*unstructured.Unstructured){wish},
			opts:   []reconciler.Option{option},
			fail: func(*testing.T, *cluster) func(string, client.Object, bool) error {
				return func(verb string, _ client.Object, after bool) error {
					if verb == "update" && !after {
						return kerrors.NewInternalError(errors.New("boom"))
					}

					return nil
				}
			},
			want: want{Finalizers: []string{mine}, Failures: 3, Reason: "ForceOrphaned"},
		},
		"AnswerLost": {
			reason: "The trail is left even if the answer was lost, and the object is gone.",
			mod:    []func(*unstructured.Unstructured){wish},
			opts:   []reconciler.Option{option},
			fail: func(*testing.T, *cluster) func(string, client.Object, bool) error {
				n := 1
				return lostAnswers("update", &n)
			},
			want: want{Gone: true, Trails: 1, Failures: 1},
		},
		"AnswerLostForeign": {
			reason: "The trail is left even if the answer was lost, and others hold the object.",
			mod:    []func(*unstructured.Unstructured){wish, held(mine, theirs)},
			opts:   []reconciler.Option{option},
			fail: func(*testing.T, *cluster) func(string, client.Object, bool) error {
				n := 1
				return lostAnswers("update", &n)
			},
			want: want{Finalizers: []string{theirs}, Trails: 1, Failures: 1, Passes: 2, Reason: "ForceOrphaned"},
		},
		"GoneMeanwhile": {
			reason: "An object that another controller released was not orphaned.",
			mod:    []func(*unstructured.Unstructured){wish},
			opts:   []reconciler.Option{option},
			fail: func(t *testing.T, c *cluster) func(string, client.Object, bool) error {
				t.Helper()

				return func(verb string, o client.Object, after bool) error {
					if verb == "update" && !after {
						c.release(t, of(composites, "", "x"), mine)
					}

					return nil
				}
			},
			want: want{Gone: true, Failures: 1},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := xr()
			held(mine)(o)
			annotated(meta.AnnotationKeyExternalName, "arn:of-x")(o)

			for _, m := range tc.mod {
				m(o)
			}

			var log []string

			r := newRig(t, newCluster(o), xr(), append(tc.opts, reconciler.WithLogger(lines{Logger: logging.NewNopLogger(), all: &log}))...)
			if tc.fail != nil {
				r.c.fail = tc.fail(t, r.c)
			}

			got := want{}

			for range 3 {
				if _, err := r.Reconcile(context.Background(), requestFor(o)); err != nil {
					got.Failures++
				}

				r.c.sweep(t, o)
			}

			got.Passes, got.Trails = r.passes, r.toldOf("ForceOrphaned")

			if got.Gone = !r.c.has(o); !got.Gone {
				got.Finalizers = r.c.read(t, o).GetFinalizers()
				got.Reason = r.c.says(t, o, reconciler.TypeDeleting).Reason
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}

			if n := r.c.count("status"); n > 3 {
				t.Errorf("\n%s\nstatus writes: want 3 at most, got %d", tc.reason, n)
			}

			if n := counter(t, r.metrics, orphaned); n != tc.want.Trails {
				t.Errorf("\n%s\nmetric: want %d, got %d", tc.reason, tc.want.Trails, n)
			}

			for _, e := range r.events.events {
				if want := `An operator asked to orphan it (external name "arn:of-x"): removed the finalizers ` + mine; e.Reason == "ForceOrphaned" && e.Message != want && name != "FinalizersChange" {
					t.Errorf("event: want %q, got %q", want, e.Message)
				}
			}

			logged := slices.ContainsFunc(log, func(l string) bool {
				return strings.HasPrefix(l, "Orphaned ") && strings.Contains(l, "arn:of-x") && strings.Contains(l, mine) && strings.Contains(l, string(o.GetUID()))
			})
			if logged != (tc.want.Trails > 0) {
				t.Errorf("\n%s\nlog: %q", tc.reason, log)
			}
		})
	}
}

// The garbage collector doesn't delete what an orphaned object owns: composed
// resources stand for external resources.
func TestForceOrphanKeepsOwned(t *testing.T) {
	owned := []*unstructured.Unstructured{of(things, "", "a", ownedBy(xr()), held("f")), of(things, "", "b", ownedBy(xr()), held("f"))}
	refused := func(err error) func(*testing.T, *cluster) func(string, client.Object, bool) error {
		return func(*testing.T, *cluster) func(string, client.Object, bool) error {
			return func(verb string, _ client.Object, _ bool) error {
				if verb == "delete" {
					return err
				}

				return nil
			}
		}
	}
	notKept := "An operator asked to orphan it, but the API server refused to delete it with the propagation policy Orphan. Without that the garbage collector would delete the objects that it owns. So these finalizers are kept: example.org/mine. See the event CannotForceOrphan."

	type want struct {
		Gone   bool
		Trails int

		// Deleting says what the object says if it is there.
		Deleting string

		// Deletes is how often the object is deleted again.
		Deletes int

		// Passes is how often the inner reconciler saw the object.
		Passes int
	}

	cases := map[string]struct {
		reason string
		mod    func(*unstructured.Unstructured)
		stale  bool
		fail   func(t *testing.T, c *cluster) func(string, client.Object, bool) error
		want   want
	}{
		"Background": {
			reason: "An object that was deleted in the background loses its finalizer after the owner references to it are removed.",
			want:   want{Gone: true, Trails: 1, Deletes: 1},
		},
		"Foreground": {
			reason: "The garbage collector's mind is changed if the object was deleted in the foreground.",
			mod:    held(metav1.FinalizerDeleteDependents, mine),
			want:   want{Gone: true, Trails: 1, Deletes: 1},
		},
		"Orphaning": {
			reason: "An object whose dependents are orphaned already is not deleted again.",
			mod:    held(mine, metav1.FinalizerOrphanDependents),
			want:   want{Gone: true, Trails: 1},
		},
		"Others": {
			reason: "If another finalizer holds the object, it stays without owner references to it.",
			mod:    held(mine, theirs),
			want:   want{Trails: 1, Deletes: 1, Passes: 4, Deleting: "An operator asked to orphan it, and finalizers were removed. Deletion was requested."},
		},
		"CollectorIsFaster": {
			reason: "A garbage collector that is done before the finalizer is removed is not asked again.",
			fail: func(t *testing.T, c *cluster) func(string, client.Object, bool) error {
				t.Helper()

				return func(verb string, _ client.Object, after bool) error {
					if verb == "update" && !after {
						c.sweep(t, append(owned, xr())...)
					}

					return nil
				}
			},
			want: want{Gone: true, Trails: 1, Deletes: 1},
		},
		"OwnsMoreByThen": {
			reason: "If removing finalizers fails, the object may own more objects by the next try.",
			fail: func(*testing.T, *cluster) func(string, client.Object, bool) error {
				n := 0

				return func(verb string, _ client.Object, after bool) error {
					if verb != "update" || after || n > 0 {
						return nil
					}

					n++

					return kerrors.NewInternalError(errors.New("boom"))
				}
			},
			want: want{Gone: true, Trails: 1, Deletes: 2},
		},
		"StaleCache": {
			reason: "An object that was read from a stale cache is not orphaned as it was.",
			stale:  true,
			want:   want{Gone: true, Trails: 1, Deletes: 1},
		},
		"Forbidden": {
			reason: "Without permission to delete the object nothing is removed, and the condition says why.",
			fail:   refused(kerrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no"))),
			want:   want{Deleting: notKept, Deletes: 4, Passes: 4},
		},
		"Protected": {
			reason: "The same if a webhook refuses: Crossplane's answers with the code of a conflict.",
			fail:   refused(&kerrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 409, Message: "in use"}}),
			want:   want{Deleting: notKept, Deletes: 4, Passes: 4},
		},
		"ServerDown": {
			reason: "Nothing is removed if the answer is unknown.",
			fail:   refused(kerrors.NewInternalError(errors.New("boom"))),
			want: want{
				Deleting: "An operator asked to orphan it: these finalizers are removed, whatever they wait for: example.org/mine. The objects that it owns are not deleted because of that.",
				Deletes:  4,
			},
		},
		"Withdrawn": {
			reason: "A wish that is withdrawn before the object is deleted again is not fulfilled.",
			fail: func(t *testing.T, c *cluster) func(string, client.Object, bool) error {
				t.Helper()

				return func(verb string, _ client.Object, after bool) error {
					if verb == "delete" && !after {
						c.change(t, xr(), func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
					}

					return nil
				}
			},
			want: want{Deletes: 1, Passes: 3, Deleting: "Deletion was requested. To orphan it, set the annotation graft.crossplane.io/force-orphan=uid-of-x: that removes example.org/mine, and deletes nothing."},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := xr()
			held(mine)(o)
			annotated(reconciler.AnnotationKeyForceOrphan, "uid-of-x")(o)

			if tc.mod != nil {
				tc.mod(o)
			}

			r := newRig(t, newCluster(append(owned, o)...), xr(), reconciler.WithForceOrphan(mine))
			if tc.fail != nil {
				r.c.fail = tc.fail(t, r.c)
			}

			if tc.stale {
				r.c.stale[client.ObjectKeyFromObject(o)] = r.c.read(t, o)
				r.c.change(t, o, annotated("n", "n"))
			}

			for i := range 4 {
				_, _ = r.Reconcile(context.Background(), requestFor(o))
				r.c.sweep(t, append(owned, o)...)

				if i == 1 {
					clear(r.c.stale)
				}
			}

			got := want{Gone: !r.c.has(o), Trails: r.toldOf("ForceOrphaned"), Deletes: r.c.count("delete"), Passes: r.passes}
			if !got.Gone {
				got.Deleting = r.c.says(t, o, reconciler.TypeDeleting).Message
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}

			for _, d := range owned {
				u := r.c.read(t, d)
				if u.GetDeletionTimestamp() != nil {
					t.Errorf("\n%s\n%s is deleted", tc.reason, d.GetName())
				}

				if n := len(u.GetOwnerReferences()); (n == 0) != (tc.want.Trails > 0) {
					t.Errorf("\n%s\n%s has %d owner references", tc.reason, d.GetName(), n)
				}
			}
		})
	}
}

// The garbage collector's finalizers are what keeps it from deleting what an object
// owns.
func TestForceOrphanRefusesFinalizersOfTheCollector(t *testing.T) {
	for _, f := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents} {
		t.Run(f, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("want a panic")
				}
			}()

			reconciler.WithForceOrphan(mine, f)
		})
	}
}

// A stale cache does not orphan an object twice, or report it twice.
func TestForceOrphanStaleCache(t *testing.T) {
	o := xr()
	held(mine, theirs)(o)
	annotated(reconciler.AnnotationKeyForceOrphan, string(o.GetUID()))(o)

	r := newRig(t, newCluster(o), o, reconciler.WithForceOrphan(mine))
	r.c.stale[client.ObjectKeyFromObject(o)] = r.c.read(t, o)

	for range 3 {
		_, _ = r.Reconcile(context.Background(), requestFor(o))
	}

	clear(r.c.stale)
	r.c.sweep(t, o)
	pass(t, r, o)

	if diff := cmp.Diff([]string{theirs}, r.c.read(t, o).GetFinalizers()); diff != "" {
		t.Errorf("finalizers: -want, +got:\n%s", diff)
	}

	if n := r.toldOf("ForceOrphaned"); n != 1 {
		t.Errorf("events: want 1, got %d", n)
	}

	want := said{"True", "ForceOrphaned", "An operator asked to orphan it, and finalizers were removed. Deletion was requested."}
	if diff := cmp.Diff(want, r.c.says(t, o, reconciler.TypeDeleting)); diff != "" {
		t.Errorf("Deleting: -want, +got:\n%s", diff)
	}
}

// The trail is left if the answer to orphaning was lost, also if a cache lags.
func TestForceOrphanInDoubt(t *testing.T) {
	for name, finalizers := range map[string][]string{"Gone": {mine}, "Held": {mine, theirs}} {
		t.Run(name, func(t *testing.T) {
			o := xr()
			held(finalizers...)(o)
			annotated(reconciler.AnnotationKeyForceOrphan, string(o.GetUID()))(o)

			r := newRig(t, newCluster(o), o, reconciler.WithForceOrphan(mine))
			n := 1
			r.c.fail = func(verb string, u client.Object, after bool) error {
				if verb == "update" && !after && n == 1 {
					r.c.stale[client.ObjectKeyFromObject(o)] = r.c.read(t, o)
				}

				return lostAnswers("update", &n)(verb, u, after)
			}

			for range 3 {
				_, _ = r.Reconcile(context.Background(), requestFor(o))
			}

			clear(r.c.stale)
			pass(t, r, o)
			pass(t, r, o)

			if got := r.toldOf("ForceOrphaned"); got != 1 {
				t.Errorf("events: want 1, got %d", got)
			}
		})
	}
}
