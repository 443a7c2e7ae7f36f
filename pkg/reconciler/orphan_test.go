package reconciler_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

const (
	mine   = "example.org/mine"
	theirs = "example.org/theirs"

	// The garbage collector's finalizers.
	gcOrphan     = metav1.FinalizerOrphanDependents
	gcForeground = metav1.FinalizerDeleteDependents
)

// What the condition of an object says that an operator asked to orphan.
const (
	orphanHint = "Deletion was requested. To orphan it, set the annotation graft.crossplane.io/force-orphan=uid-of-x: " +
		"that removes example.org/mine, and deletes nothing."
	orphanWaits = " Until that is permitted, the deletion waits: see the event CannotForceOrphan. To continue it instead, " +
		"remove the annotation graft.crossplane.io/force-orphan."
	orphanDone = "An operator asked to orphan it, and finalizers were removed."
)

var (
	orphanWish    = withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-of-x")
	wantRequested = conditionText{"True", "DeletionRequested", orphanHint}
	wantSilent    = conditionText{"True", "DeletionRequested", "Deletion was requested."}
	wantWaiting   = conditionText{
		"True", "ForceOrphaned",
		orphanDone + " Waiting for other controllers to remove their finalizers: example.org/theirs.",
	}
	wantOrphaned  = conditionText{"True", "ForceOrphaned", orphanDone + " Deletion was requested."}
	wantAnnounced = conditionText{
		"True", "ForceOrphaned", "An operator asked to orphan it: these finalizers are removed, whatever they wait for: " +
			"example.org/mine. The objects that it owns are not deleted because of that.",
	}
	wantNotKept = conditionText{
		"True", "ForceOrphaned", "An operator asked to orphan it, but the API server refused to delete it with the " +
			"propagation policy Orphan. Without that the garbage collector would delete the objects that it owns. " +
			"So these finalizers are kept: example.org/mine." + orphanWaits,
	}
	wantNotRemoved = conditionText{
		"True", "ForceOrphaned", "An operator asked to orphan it, but the API server refused to remove these " +
			"finalizers: example.org/mine." + orphanWaits,
	}
)

// wantOperation returns the condition while an operation may run.
func wantOperation(why string) conditionText {
	return conditionText{
		"True", "ForceOrphaned", "An operator asked to orphan it, but an operation on its external resource, a create, " +
			"may run until T: " + why + ". After that these finalizers are removed: example.org/mine.",
	}
}

func withdrawWish(t *testing.T, c *cluster) {
	t.Helper()
	c.update(t, newComposite(), func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
}

func freezeComposite(t *testing.T, c *cluster) {
	t.Helper()
	c.freeze(t, newComposite())
}

func newOwned() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		newObject(things, "", "a", withController(newComposite()), withFinalizers("f")),
		newObject(things, "", "b", withController(newComposite()), withFinalizers("f")),
	}
}

// An orphanWant is the outcome of a request to orphan an object.
type orphanWant struct {
	// Finalizers that are left; Gone if the object is.
	Finalizers []string
	Gone       bool

	// Trails is how many events and counts there are.
	Trails int

	// Passes is how often the inner reconciler saw the object, Failures how
	// many of the reconciles failed, and Deletes how often the object was
	// deleted again.
	Passes, Failures, Deletes int

	// Deleting is the message of the condition, if the object exists.
	Deleting conditionText
}

// An orphanCase is a request to orphan an object, and how it fares.
type orphanCase struct {
	reason string
	mod    []func(*unstructured.Unstructured)
	opts   []reconciler.Option

	// unable is whether the option is missing.
	unable bool

	// meanwhile is called before the nth request of a verb, or all if that is 0,
	// which then fails with err.
	verb      string
	nth       int
	meanwhile func(t *testing.T, c *cluster)
	err       error

	// lost is whether the answer to that request is lost, and slow whether the
	// garbage collector needs three reconciles.
	lost, slow bool

	// times is how many reconciles there are, 5 if it is 0. step is the time between two.
	times int
	step  time.Duration

	// cached is whether there is no live reader.
	cached bool
	want   orphanWant
}

// The finalizers are removed if an operator asks for it; owned objects stay.
func TestForceOrphan(t *testing.T) {
	runOrphanCases(t, map[string]orphanCase{
		"Asked": {
			reason: "With everything that it takes the finalizer goes, and with it the object, which the inner reconciler doesn't see.",
			want:   orphanWant{Gone: true, Trails: 1, Deletes: 1},
		},
		"OperationRuns": {
			reason: "The finalizers should stay while an operation runs on the external resource, and the inner reconciler should begin no other one.",
			mod:    []func(*unstructured.Unstructured){withRunningOperation},
			want:   orphanWant{Finalizers: []string{mine}, Deleting: wantOperation("it is recorded as running")},
		},
		"OperationBegins": {
			reason: "The same for an operation that began after the object was read.",
			verb:   "get", nth: 2, cached: true, times: 1,
			meanwhile: func(t *testing.T, c *cluster) {
				t.Helper()
				c.update(t, newComposite(), withRunningOperation)
			},
			want: orphanWant{
				Finalizers: []string{mine}, Deletes: 1, Deleting: wantOperation("it is recorded as running"),
			},
		},
		"NoConditions": {
			reason: "An object without conditions can be orphaned too, and one that is paused.",
			mod: []func(*unstructured.Unstructured){
				withField(fieldPath("status"), "odd"), withAnnotation(meta.AnnotationKeyReconciliationPaused, "true"),
			},
			want: orphanWant{Gone: true, Trails: 1, Deletes: 1},
		},
		"OptionRemoved": {
			reason: "Nor without it any more, which the condition then does not say.",
			mod: []func(*unstructured.Unstructured){
				withConditions(reconciler.Deleting(time.Now(), reconciler.ReasonForceOrphaned, "")...),
			},
			unable: true,
			want:   orphanWant{Finalizers: []string{mine}, Passes: 5, Deleting: wantSilent},
		},
		"NotDeleting": {
			reason: "Not unless it is being deleted.",
			mod: []func(*unstructured.Unstructured){
				func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(nil) },
			},
			want: orphanWant{Finalizers: []string{mine}, Passes: 5, Deleting: conditionText{Status: "Unknown"}},
		},
		"WrongUID": {
			reason: "Not if another object was meant.",
			mod:    []func(*unstructured.Unstructured){withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-of-y")},
			want:   orphanWant{Finalizers: []string{mine}, Passes: 5, Deleting: wantRequested},
		},
		"NoUID": {
			reason: "Not if there is no UID to compare.",
			mod: []func(*unstructured.Unstructured){
				withAnnotation(reconciler.AnnotationKeyForceOrphan, ""),
				func(u *unstructured.Unstructured) { u.SetUID("") },
			},
			want: orphanWant{
				Finalizers: []string{mine},
				Passes:     5,
				Deleting:   conditionText{"True", "DeletionRequested", strings.Replace(orphanHint, "uid-of-x", "", 1)},
			},
		},
		"NotListed": {
			reason: "A finalizer that the option doesn't list should stay.",
			mod:    []func(*unstructured.Unstructured){withFinalizers(theirs)},
			want:   orphanWant{Finalizers: []string{theirs}, Passes: 5, Deleting: wantSilent},
		},
		"OrphanedByAnother": {
			reason: "An object that waits for the garbage collector alone is hidden from the inner reconciler only if an operator asked.",
			mod: []func(*unstructured.Unstructured){
				withFinalizers(gcOrphan), withAnnotation(reconciler.AnnotationKeyForceOrphan, ""),
			},
			slow: true, want: orphanWant{Gone: true, Passes: 3},
		},
		"Foreground": {
			reason: "The garbage collector's mind is changed if the object was deleted in the foreground.",
			mod:    []func(*unstructured.Unstructured){withFinalizers(gcForeground, mine)},
			want:   orphanWant{Gone: true, Trails: 1, Deletes: 1},
		},
		"CollectorIsFaster": {
			reason:    "A garbage collector that is done before the finalizer is removed is not asked again.",
			verb:      "update",
			meanwhile: func(t *testing.T, c *cluster) { c.collectGarbage(t, newComposite(), newOwned()...) },
			want:      orphanWant{Gone: true, Trails: 1, Failures: 1, Deletes: 1},
		},
		"CollectorIsSlow": {
			reason: "The inner reconciler does not see an object that waits for the garbage collector alone.",
			slow:   true,
			want:   orphanWant{Gone: true, Trails: 1, Deletes: 1},
		},
	})
}

// A request that is withdrawn before the finalizers are removed changes nothing.
func TestForceOrphan_Withdrawn(t *testing.T) {
	forbidden := kerrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no"))
	runOrphanCases(t, map[string]orphanCase{
		"WishWithdrawnLate": {
			reason: "A wish that is withdrawn after the finalizer was removed, before the third write of status, changes nothing.",
			mod:    []func(*unstructured.Unstructured){orphanWish, withFinalizers(theirs, mine)},
			opts:   []reconciler.Option{reconciler.WithOwnFinalizers(mine)},
			verb:   "status",
			nth:    3, meanwhile: withdrawWish,
			want: orphanWant{Finalizers: []string{theirs}, Trails: 1, Deletes: 1, Deleting: wantWaiting},
		},
		"WishWithdrawn": {
			reason:    "A wish that was withdrawn meanwhile is not fulfilled.",
			verb:      "update",
			meanwhile: withdrawWish,
			want: orphanWant{
				Finalizers: []string{mine}, Passes: 4, Failures: 1, Deletes: 1, Deleting: wantRequested,
			},
		},
		"WishWithdrawnBeforeDelete": {
			reason:    "Neither is one that was withdrawn before the object is deleted again.",
			verb:      "delete",
			meanwhile: withdrawWish,
			want: orphanWant{
				Finalizers: []string{mine}, Passes: 4, Failures: 1, Deletes: 1, Deleting: wantRequested,
			},
		},
		"WishWithdrawnEarly": {
			reason: "Neither is one that was withdrawn before it was announced, which is the second write of status.",
			verb:   "status",
			nth:    2, meanwhile: withdrawWish,
			want: orphanWant{Finalizers: []string{mine}, Passes: 5, Deleting: wantRequested},
		},
		"RefusedAndWithdrawn": {
			reason: "The deletion should continue when a request that was refused is withdrawn.",
			verb:   "delete", nth: 1, meanwhile: withdrawWish, err: forbidden,
			want: orphanWant{Finalizers: []string{mine}, Passes: 4, Failures: 1, Deletes: 1, Deleting: wantRequested},
		},
	})
}

// Requests fail, answers are lost, and caches are stale.
func TestForceOrphan_Faults(t *testing.T) {
	forbidden := kerrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no"))
	protected := &kerrors.StatusError{
		ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 409, Message: "in use"},
	}
	boom := kerrors.NewInternalError(errors.New("boom"))
	runOrphanCases(t, map[string]orphanCase{
		"AnnouncementFailsForLong": {
			reason: "A condition that can't be written for long should not keep the finalizers: the event, the log and the count record it.",
			mod: []func(*unstructured.Unstructured){
				withConditions(reconciler.Deleting(time.Now(), reconciler.ReasonDeletionRequested, orphanHint)...),
			},
			verb:  "status",
			err:   boom,
			times: 6,
			want:  orphanWant{Gone: true, Trails: 1, Failures: 5, Deletes: 1},
		},
		"Unserved": {
			reason: "A version that is not served for a while keeps nothing that the object owns.",
			verb:   "delete", nth: 1, err: errUnserved,
			want: orphanWant{Gone: true, Trails: 1, Failures: 1, Deletes: 2},
		},
		"Forbidden": {
			reason: "Without permission to remove finalizers the inner reconciler must not clean up, and the condition says why.",
			verb:   "update", err: forbidden,
			want: orphanWant{Finalizers: []string{mine}, Failures: 5, Deletes: 1, Deleting: wantNotRemoved},
		},
		"Protected": {
			reason: "The same if a webhook refuses: Crossplane's answers with the code of a conflict.",
			verb:   "delete",
			err:    protected,
			want:   orphanWant{Finalizers: []string{mine}, Failures: 5, Deletes: 5, Deleting: wantNotKept},
		},
		"RefusedAndGranted": {
			reason: "A request that is refused at first should be granted later.",
			mod:    []func(*unstructured.Unstructured){withFinalizers(theirs, mine)},
			opts:   []reconciler.Option{reconciler.WithOwnFinalizers(mine)},
			verb:   "delete",
			nth:    1,
			err:    forbidden,
			want:   orphanWant{Finalizers: []string{theirs}, Trails: 1, Failures: 1, Deletes: 2, Deleting: wantWaiting},
		},
		"ServerDown": {
			reason: "What fails is tried again, and recorded once. The garbage collector should not cause another reconcile each time.",
			verb:   "update",
			err:    boom,
			want:   orphanWant{Finalizers: []string{mine}, Trails: 1, Failures: 5, Deletes: 1, Deleting: wantAnnounced},
		},
		"ServerDownForLong": {
			reason: "The object may own more objects after a while.",
			verb:   "update",
			err:    boom,
			step:   30 * time.Second,
			want:   orphanWant{Finalizers: []string{mine}, Trails: 1, Failures: 5, Deletes: 3, Deleting: wantAnnounced},
		},
		"AnswerLost": {
			reason: "The trail is left even if the answer was lost, and the object no longer exists.",
			verb:   "update", nth: 1, lost: true, want: orphanWant{Gone: true, Trails: 1, Failures: 1, Deletes: 1},
		},
		"AnswerLostStaleCache": {
			reason: "The same if the cache is stale.",
			verb:   "update",
			nth:    1, meanwhile: freezeComposite, lost: true,
			want: orphanWant{Gone: true, Trails: 1, Failures: 1, Deletes: 1},
		},
		"AnswerLostForeignStaleCache": {
			reason:    "The same if both are true.",
			mod:       []func(*unstructured.Unstructured){withFinalizers(mine, theirs)},
			verb:      "update",
			nth:       1,
			meanwhile: freezeComposite,
			lost:      true,
			want: orphanWant{
				Finalizers: []string{theirs},
				Trails:     1,
				Failures:   3,
				Passes:     2,
				Deletes:    1,
				Deleting:   wantOrphaned,
			},
		},
		"ForeignStaleCache": {
			reason: "If the cache is stale, a write of the inner reconciler's meets no conflict.",
			mod:    []func(*unstructured.Unstructured){withFinalizers(mine, theirs)},
			verb:   "status", nth: 1, meanwhile: freezeComposite,
			want: orphanWant{Finalizers: []string{theirs}, Trails: 1, Passes: 5, Deletes: 1, Deleting: wantOrphaned},
		},
	})
}

func runOrphanCases(t *testing.T, cases map[string]orphanCase) {
	t.Helper()
	option, owned := reconciler.WithForceOrphan(mine, "example.org/other"), newOwned()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := modify(
				modify(
					newComposite(), withFinalizers(mine), withAnnotation(meta.AnnotationKeyExternalName, "arn:of-x"),
					orphanWish,
				),
				tc.mod...,
			)
			if !tc.unable {
				tc.opts = append(tc.opts, option)
			}
			r := newTestReconciler(t, newCluster(append(owned, o)...), newComposite(), tc.opts...)
			if r.cached = tc.cached; r.cached {
				r.opts = tc.opts
				r.restart()
			}
			r.c.fail = func(verb string, _ client.Object, after bool) error {
				switch {
				case verb != tc.verb || tc.nth > 0 && tc.nth != r.c.count(verb):
					return nil
				case after && tc.lost:
					return kerrors.NewTimeoutError("lost", 1)
				case after:
					return nil
				case tc.meanwhile != nil:
					tc.meanwhile(t, r.c)
				}
				return tc.err
			}
			r.inner = func(ctx context.Context, c client.Client, o *composite.Unstructured) error {
				if slices.Contains(o.GetFinalizers(), mine) && r.countEvents("ForceOrphaned") > 0 {
					t.Errorf("\n%s\nThe inner reconciler acts for a finalizer that was removed", tc.reason)
				}
				label := fmt.Appendf(
					nil, `{"metadata":{"resourceVersion":%q,"labels":{"seen":"yes"}}}`, o.GetResourceVersion(),
				)
				return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, label))
			}
			got := orphanWant{}
			for i := range cmp.Or(tc.times, 5) {
				if _, err := r.Reconcile(context.Background(), requestFor(o)); err != nil {
					got.Failures++
				}
				r.now = r.now.Add(tc.step)
				if i == 2 {
					r.c.api.Thaw()
				}
				if i >= 2 || !tc.slow {
					r.c.collectGarbage(t, o, owned...)
				}
			}
			got.Passes, got.Trails, got.Deletes = r.passes, r.countEvents("ForceOrphaned"), r.c.count("delete")
			if got.Gone = !r.c.exists(o); !got.Gone {
				got.Finalizers, got.Deleting = without(r.c.read(t, o).GetFinalizers(), gcOrphan),
					r.c.condition(t, o, reconciler.TypeDeleting)
			}
			expectEqual(t, tc.reason, "", tc.want, got)
			expectEqual(
				t, tc.reason, "metric", tc.want.Trails, metricValue(t, r.metrics, "graft_deletion_orphaned_total"),
			)
			for _, m := range r.events.Events("ForceOrphaned") {
				want := `An operator asked to orphan it (external name "arn:of-x"): removing the finalizers ` + mine
				if m != want {
					t.Errorf("\n%s\nevent: want %q, got %q", tc.reason, want, m)
				}
			}
			told := func(l string) bool { return strings.HasPrefix(l, "Cannot orphan ") }
			expectEqual(
				t, tc.reason, "told in the log", r.countEvents("CannotForceOrphan") > 0,
				slices.ContainsFunc(r.events.Lines(), told),
			)
			logged := slices.ContainsFunc(r.events.Lines(), func(l string) bool {
				return strings.HasPrefix(l, "Orphaning") && strings.Contains(l, "arn:of-x") &&
					strings.Contains(l, mine) &&
					strings.Contains(l, string(o.GetUID()))
			})
			expectEqual(t, tc.reason, "logged", true, logged || tc.want.Trails == 0)
			for _, d := range owned {
				// Whatever was orphaned or kept has not been deleted.
				if u := r.c.read(t, d); u.GetDeletionTimestamp() != nil && o.GetUID() != "" || tc.want.Trails > 0 &&
					len(u.GetOwnerReferences()) > 0 {
					t.Errorf(
						"\n%s\n%s: deleted at %v, owners %v", tc.reason, d.GetName(), u.GetDeletionTimestamp(),
						u.GetOwnerReferences(),
					)
				}
			}
		})
	}
}

func TestForceOrphan_RequestedAgain(t *testing.T) {
	const reason = "A second request should keep the objects that were created after the first was withdrawn."
	wish := withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-of-x")
	o := modify(newComposite(), withFinalizers(mine), wish)
	owned := newObject(things, "", "a", withController(o), withFinalizers("f"))
	r := newTestReconciler(t, newCluster(o, owned), o, reconciler.WithForceOrphan(mine))

	// The request is withdrawn between the second deletion and the removal of finalizers.
	r.c.fail = func(verb string, _ client.Object, _ bool) error {
		if verb == "update" {
			r.c.fail = nil
			r.c.update(t, o, func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
		}
		return nil
	}
	_, _ = r.Reconcile(context.Background(), requestFor(o))
	r.c.collectGarbage(t, o, owned)

	r.inner = func(context.Context, client.Client, *composite.Unstructured) error {
		r.c.update(t, owned, withController(o))
		return nil
	}
	mustReconcile(t, r, o)
	r.c.update(t, o, wish)
	mustReconcile(t, r, o)
	r.c.collectGarbage(t, o, owned)
	r.c.collectGarbage(t, o, owned)
	got := r.c.read(t, owned)
	expectEqual(
		t, reason, "gone, deletes, owned deleted, owners", []any{true, 2, false, 0},
		[]any{!r.c.exists(o), r.c.count("delete"), meta.WasDeleted(got), len(got.GetOwnerReferences())},
	)
}

func TestForceOrphan_WithdrawnBeforeCleanup(t *testing.T) {
	cases := map[string]struct {
		reason     string
		finalizers []string
		refused    error // of the second deletion. Otherwise the request is withdrawn before that.
	}{
		"Refused": {
			reason:     "A request that was refused and then withdrawn should not be reported as granted.",
			finalizers: []string{mine, theirs},
			refused:    kerrors.NewForbidden(schema.GroupResource{}, "x", nil),
		},
		"InConflict": {
			reason:     "A request that was withdrawn before the second deletion should not be reported as granted.",
			finalizers: []string{mine, gcForeground},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := modify(newComposite(), withFinalizers(tc.finalizers...))
			r := newTestReconciler(
				t, newCluster(o), o, reconciler.WithForceOrphan(mine), reconciler.WithOwnFinalizers(mine),
			)
			mustReconcile(t, r, o)
			r.c.update(t, o, withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-of-x"))
			withdraw := func() { r.c.update(t, o, func(u *unstructured.Unstructured) { u.SetAnnotations(nil) }) }
			r.c.fail = func(verb string, _ client.Object, _ bool) error {
				if verb == "delete" && tc.refused == nil {
					r.c.fail = nil
					withdraw()
				}
				return nil
			}
			if tc.refused != nil {
				r.c.fail = refuseVerb("delete", tc.refused)
			}
			_, _ = r.Reconcile(context.Background(), requestFor(o))
			r.c.fail = nil
			reported := r.c.condition(t, o, reconciler.TypeDeleting).Reason
			expectEqual(t, tc.reason, "requested", string(reconciler.ReasonForceOrphaned), reported)
			if tc.refused != nil {
				withdraw()
			}

			r.inner = removeMine
			mustReconcile(t, r, o)
			expectEqual(
				t, tc.reason, "Deleting", string(reconciler.ReasonWaitingForFinalizers),
				r.c.condition(t, o, reconciler.TypeDeleting).Reason,
			)
		})
	}
}

func TestForceOrphan_WithdrawnInDoubt(t *testing.T) {
	reason := "An older object in a stale cache should not hide that the object was orphaned."
	o := modify(newComposite(), withFinalizers(mine, theirs))
	r := newTestReconciler(t, newCluster(o), o, reconciler.WithForceOrphan(mine))
	mustReconcile(t, r, o)
	old := r.c.read(t, o)
	r.c.update(t, o, withAnnotation(reconciler.AnnotationKeyForceOrphan, "uid-of-x"))
	r.c.fail = func(verb string, _ client.Object, after bool) error {
		if verb == "update" && after {
			return kerrors.NewInternalError(errors.New("boom"))
		}
		return nil
	}
	_, _ = r.Reconcile(context.Background(), requestFor(o))
	r.c.fail = nil
	r.c.update(t, o, func(u *unstructured.Unstructured) { u.SetAnnotations(nil) })
	r.c.api.FreezeAs(old)
	r.inner = removeMine
	_, _ = r.Reconcile(context.Background(), requestFor(o))
	r.c.api.Thaw()
	mustReconcile(t, r, o)
	expectEqual(t, reason, "finalizers", []string{theirs}, without(r.c.read(t, o).GetFinalizers(), gcOrphan))
	expectEqual(t, reason, "events", 1, r.countEvents("ForceOrphaned"))
}

func TestForceOrphan_OperationUncached(t *testing.T) {
	o := modify(newComposite(), withFinalizers(mine, theirs))
	r := newTestReconciler(t, newCluster(o), o, reconciler.WithForceOrphan(mine))
	mustReconcile(t, r, o)
	r.c.update(t, o, withAnnotation(reconciler.AnnotationKeyForceOrphan, string(o.GetUID())))
	r.c.freeze(t, o)
	r.c.update(t, o, withRunningOperation)
	for range 3 {
		_, _ = r.Reconcile(context.Background(), requestFor(o))
	}
	expectEqual(
		t, "The finalizers should stay although the cache does not show the operation.", "finalizers",
		[]string{mine, theirs}, r.c.read(t, o).GetFinalizers(),
	)
}
