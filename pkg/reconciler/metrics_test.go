package reconciler_test

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pkg/errors"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// metricLines returns what Prometheus reads: lines, without comments.
func metricLines(t *testing.T, m *reconciler.Metrics) []string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var out []string
	for l := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(l, "#") {
			out = append(out, strings.TrimSpace(l))
		}
	}
	return out
}

var series = regexp.MustCompile(`^(\w+){(?:.*reason="([^"]*)")?.*} (\d+)$`)

// metricValues returns the values of a metric over all kinds, by reason if it has that. One
// that is zero is left out.
func metricValues(t *testing.T, m *reconciler.Metrics, name string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, l := range metricLines(t, m) {
		if s := series.FindStringSubmatch(l); len(s) > 3 && s[1] == name && s[3] != "0" {
			n, _ := strconv.Atoi(s[3])
			out[s[2]] += n
		}
	}
	return out
}

func metricValue(t *testing.T, m *reconciler.Metrics, name string) int {
	t.Helper()
	return metricValues(t, m, name)[""]
}

func blockedMetric(t *testing.T, m *reconciler.Metrics) map[string]int {
	t.Helper()
	return metricValues(t, m, "graft_deletion_blocked")
}

const duration = "graft_deletion_duration_seconds"

// The metrics after each way in which an object may go.
func TestMetrics(t *testing.T) {
	goes := func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
		t.Helper()
		r.c.release(t, o, "example.org/f")
		mustReconcile(t, r, o)
	}
	cases := map[string]struct {
		reason string

		// staleStart lets the cache have the object from before its deletion, which the answer to
		// a write of the inner reconciler shows.
		staleStart bool
		end        func(t *testing.T, r *testReconciler, o *unstructured.Unstructured)
		want       []int // How many deletions were measured, and their seconds.
		left       map[string]int
	}{
		"Unserved": {
			reason: "That its version is not served for a while says nothing of an object.",
			end: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				r.c.fail = refuseVerb("get", errUnserved)
				mustReconcile(t, r, o)
				r.c.fail = nil
				mustReconcile(t, r, o)
			},
			want: []int{0, 0}, left: map[string]int{"DeletionRequested": 1},
		},
		"NameUsedAgain": {
			reason: "An object whose name another one has is gone, too.",
			end: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				r.c.release(t, o, "example.org/f")
				another := newObject(composites, "", o.GetName())
				another.SetUID("another")
				must(t, r.c.server.Create(context.Background(), another))
				mustReconcile(t, r, o)
			},
			want: []int{1, 60},
		},
		"ServerAhead": {
			reason: "The clock of the API server may be ahead. A sum that falls is a restart to Prometheus.",
			end: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				r.now = o.GetDeletionTimestamp().Add(-time.Minute)
				goes(t, r, o)
			},
			want: []int{1, 0},
		},
		"DeletedDuringReconcile": {
			reason:     "The duration should count from the request also if each reconcile began before that.",
			staleStart: true,
			end: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				r.c.api.Thaw()
				goes(t, r, o)
			},
			want: []int{1, 60},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := newComposite()
			r := newTestReconciler(t, newCluster(o), o, reconciler.WithForceOrphan("example.org/f"))
			if tc.staleStart {
				before := o.DeepCopy()
				before.SetDeletionTimestamp(nil)
				r.c.api.FreezeAs(before)
				r.inner = writeLabel
			}
			mustReconcileTimes(t, 2, r, o)
			expectEqual(t, "", "blocked before", map[string]int{"DeletionRequested": 1}, blockedMetric(t, r.metrics))
			tc.end(t, r, o)
			expectEqual(t, tc.reason, "durations, seconds", tc.want, []int{
				metricValue(t, r.metrics, duration+"_count"), metricValue(t, r.metrics, duration+"_sum"),
			})
			expectEqual(t, tc.reason, "blocked", tc.left, blockedMetric(t, r.metrics), cmpopts.EquateEmpty())
			rec, _ := r.Reconciler.(*reconciler.Reconciler)
			expectEqual(
				t, "", "keeps something of what is gone", false, tc.left == nil && reconciler.Kept(rec, r.metrics) > 0,
			)
		})
	}
}

// The API server is read after a conflict. Without a live reader that may be the cache.
func TestReport_StaleReadAfterConflict(t *testing.T) {
	o := newComposite()
	r := newTestReconciler(t, newCluster(o), o)
	r.opts, r.cached = nil, true
	r.restart()
	before := o.DeepCopy()
	before.SetDeletionTimestamp(nil)
	r.c.api.FreezeAs(before)
	conflict := kerrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("stale"))
	r.inner = func(ctx context.Context, c client.Client, o *composite.Unstructured) error {
		err := writeLabel(ctx, c, o)
		r.c.fail = refuseVerb("status", conflict)
		return err
	}
	_, _ = r.Reconcile(context.Background(), requestFor(o))
	expectEqual(
		t, "A stale read should change nothing of the deletion that an answer has shown.", "blocked",
		map[string]int{"DeletionRequested": 1}, blockedMetric(t, r.metrics),
	)
}

// The exposed text, because alerts depend on it.
func TestMetricsExposed(t *testing.T) {
	o := newComposite()
	r := newTestReconciler(t, newCluster(o), o)
	r.opts = append(r.opts, r.deadline(30*time.Second))
	r.restart()
	mustReconcile(t, r, o)
	want := []string{
		`graft_deletion_blocked{gvk="example.org/v1, Kind=XApp",reason="DeadlineExceeded"} 1`,
		`graft_deletion_deadline_exceeded_total{gvk="example.org/v1, Kind=XApp"} 1`,
	}
	expectEqual(t, "", "while it is there", want, metricLines(t, r.metrics))
	r.c.release(t, o, "example.org/f")
	mustReconcile(t, r, o)
	want = []string{
		`graft_deletion_blocked{gvk="example.org/v1, Kind=XApp",reason="DeadlineExceeded"} 0`,
		`graft_deletion_deadline_exceeded_total{gvk="example.org/v1, Kind=XApp"} 1`,
		`graft_deletion_duration_seconds_sum{gvk="example.org/v1, Kind=XApp"} 60`,
		`graft_deletion_duration_seconds_count{gvk="example.org/v1, Kind=XApp"} 1`,
	}
	buckets := func(l string) bool { return strings.Contains(l, "_bucket{") }
	expectEqual(t, "", "when it is gone", want, slices.DeleteFunc(metricLines(t, r.metrics), buckets))
}

// A controller that was stopped won't see that its objects no longer exist.
func TestMetricsWithdraw(t *testing.T) {
	object := func(name string) *unstructured.Unstructured {
		return newObject(
			composites, "", name, withFinalizers("example.org/f"), withDeletionTimestamp,
			withConditions(xpv2.Available()),
		)
	}
	requested := func(n int) map[string]int { return map[string]int{"DeletionRequested": n} }
	stays, goes, unseen := object("stays"), object("goes"), object("unseen")
	r := newTestReconciler(t, newCluster(stays, goes, unseen), stays)
	check := func(when string, want map[string]int) {
		t.Helper()
		expectEqual(t, "", when, want, blockedMetric(t, r.metrics))
	}
	for _, o := range []*unstructured.Unstructured{stays, goes, unseen} {
		mustReconcile(t, r, o)
	}
	check("three are reported", requested(3))

	// The controller is stopped, and two objects no longer exist. Another
	// controller is started.
	r.c.release(t, goes, "example.org/f")
	r.c.release(t, unseen, "example.org/f")
	r.restart()
	mustReconcile(t, r, stays)
	check("an object that is reported again counts once", requested(3))
	mustReconcile(t, r, goes)
	check("another reconciler may see that an object no longer exists", requested(2))
	expectEqual(
		t, "", "durations of objects that were not seen from the beginning", 0,
		metricValue(t, r.metrics, duration+"_count"),
	)
	r.metrics.Withdraw(things)
	check("other kinds stay", requested(2))
	r.metrics.Withdraw(composites)
	check("nothing of the kind is reported", map[string]int{})
	for _, l := range metricLines(t, r.metrics) {
		if strings.HasPrefix(l, "graft_deletion_blocked{") {
			t.Errorf("nothing of a kind that may never be back stays: %s", l)
		}
	}
	mustReconcile(t, r, stays)
	check("a reconciler that was withdrawn reports nothing", map[string]int{})
	r.restart()
	mustReconcile(t, r, stays)
	check("a reconciler that is started later reports", requested(1))
}

var (
	waitsForThing   = waitsFor("0 of 1 dependents deleted, 0%. Thing/a since T: held by f.")
	exceedsDeadline = conditionText{
		"True", "DeadlineExceeded", "The deadline for the deletion was T. " + waitsForThing.Message,
	}
)

func pastDeadline(r *testReconciler, o *unstructured.Unstructured) {
	r.now = o.GetDeletionTimestamp().Add(2 * time.Hour)
}

func beforeDeadline(r *testReconciler, o *unstructured.Unstructured) {
	r.now = o.GetDeletionTimestamp().Add(time.Hour - 1)
}

// A deadlineCase is what happens when the deadline of a deletion passes.
type deadlineCase struct {
	reason string
	bare   bool // The object has no conditions yet.

	// run reconciles after the deadline has passed, which is in the future when
	// the object is reconciled for the first time, unless it is bare.
	run func(t *testing.T, r *testReconciler, o *unstructured.Unstructured)

	// untold is whether it is not reported. By default it is, and the condition is exceedsDeadline.
	untold bool
	want   conditionText
}

// A deadline is reported once.
func TestDeadline(t *testing.T) {
	runDeadlineCases(t, map[string]deadlineCase{
		"NotYet": {
			reason: "Before the deadline nothing is reported.",
			run: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				beforeDeadline(r, o)
				mustReconcile(t, r, o)
			},
			untold: true, want: waitsForThing,
		},
		"InReconcile": {
			reason: "If it passes while the inner reconciler works, the next reconcile comes at once.",
			run: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				beforeDeadline(r, o)
				r.inner = func(ctx context.Context, c client.Client, x *composite.Unstructured) error {
					pastDeadline(r, o)
					return writeStatus(ctx, c, x)
				}
				result := mustReconcile(t, r, o)
				expectEqual(
					t, "", "told, and the next reconcile", []any{0, time.Duration(1)},
					[]any{r.called, result.RequeueAfter},
				)
				mustReconcile(t, r, o)
			},
		},
		"FirstConditions": {
			reason: "It has passed when the object gets conditions.", bare: true,
			run: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				r.inner = writeStatus
				mustReconcileTimes(t, 2, r, o)
			},
		},
		"OrphanWithdrawn": {
			reason: "It has passed when an operator withdraws the wish to orphan the object.",
			run: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				r.now = o.GetDeletionTimestamp().Add(time.Minute)
				r.c.fail = refuseVerb("delete", kerrors.NewForbidden(schema.GroupResource{}, "x", errors.New("in use")))
				r.c.update(t, o, withAnnotation(reconciler.AnnotationKeyForceOrphan, string(o.GetUID())))
				_, _ = r.Reconcile(context.Background(), requestFor(o))
				pastDeadline(r, o)
				_, _ = r.Reconcile(context.Background(), requestFor(o))
				expectEqual(t, "", "told of an object that is orphaned", 0, r.called)
				r.c.update(t, o, withAnnotation(reconciler.AnnotationKeyForceOrphan, ""))
				mustReconcileTimes(t, 2, r, o)
			},
		},
	})
}

// A deadline is reported once, also if requests fail at that time, or the cache is stale.
func TestDeadline_Faults(t *testing.T) {
	runDeadlineCases(t, map[string]deadlineCase{
		"StaleCache": {
			reason: "Neither a stale cache nor a restart makes it be reported again.",
			run: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				r.c.freeze(t, o)
				mustReconcileTimes(t, 2, r, o)
				r.restart()
				mustReconcileTimes(t, 6, r, o)
				r.c.api.Thaw()
				mustReconcile(t, r, o)
				r.restart()
				mustReconcile(t, r, o)
			},
		},
		"StaleCacheWithoutLiveReader": {
			reason: "Nor does a conflict, after which nothing was written.",
			run: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				old := r.c.read(t, o)
				mustReconcile(t, r, o)
				r.c.api.FreezeAs(old)
				r.opts, r.cached = []reconciler.Option{withComposed, r.deadline(time.Hour)}, true
				r.restart()
				_, err := r.Reconcile(context.Background(), requestFor(o))
				expectEqual(t, "", "conflict", true, kerrors.IsConflict(err))
				r.c.api.Thaw()
				mustReconcile(t, r, o)
			},
		},
		"AnswerLost": {
			reason: "If the answer to the write is lost, it is still reported.",
			run: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
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
				mustReconcileTimes(t, 2, r, o)
			},
		},
		"Forbidden": {
			reason: "Without permission to write it on the object, it is reported once.",
			run: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				r.c.fail = refuseVerb("status", kerrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no")))
				mustReconcileTimes(t, 2, r, o)
			},
			want: waitsForThing,
		},
		"LeftAndReturned": {
			reason: "The cache may lack the object for a while: its label gave it to another shard, and back.",
			run: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				r.c.fail = refuseVerb("get", kerrors.NewNotFound(schema.GroupResource{}, o.GetName()))
				mustReconcile(t, r, o)
				r.c.fail = nil
				result := mustReconcile(t, r, o)
				expectEqual(
					t, "A deletion that waits should be reported again.", "requeued, blocked",
					[]any{true, map[string]int{"DeadlineExceeded": 1}},
					[]any{result.RequeueAfter > 0, blockedMetric(t, r.metrics)},
				)
			},
		},
		"LeftAndReturnedThrottled": {
			reason: "The same if the API server throttles the read that finds out whether the object exists.",
			run: func(t *testing.T, r *testReconciler, o *unstructured.Unstructured) {
				r.opts, r.cached = append(r.opts, reconciler.WithLiveReader(r.c.api.Live())), true
				r.now = o.GetDeletionTimestamp().Add(time.Minute)
				r.restart()
				mustReconcile(t, r, o)
				r.c.fail = refuseVerb("get", kerrors.NewNotFound(schema.GroupResource{}, o.GetName()))
				mustReconcile(t, r, o)
				pastDeadline(r, o)
				r.c.fail = func(verb string, of client.Object, _ bool) error {
					if verb != "live" || of.GetName() != o.GetName() {
						return nil
					}
					r.c.fail = nil
					return kerrors.NewTooManyRequests("slow down", 1)
				}
				_, _ = r.Reconcile(context.Background(), requestFor(o))
				mustReconcileTimes(t, 2, r, o)
			},
		},
	})
}

func runDeadlineCases(t *testing.T, cases map[string]deadlineCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dep := newHeldThing("a")
			o := newComposite(dep)
			if tc.bare {
				delete(o.Object, "status")
			}
			opts := []reconciler.Option{withComposed}
			if name == "OrphanWithdrawn" {
				opts = append(opts, reconciler.WithForceOrphan("example.org/f"))
			}
			r := newTestReconciler(t, newCluster(o, dep), o, opts...)
			r.opts = append(r.opts, r.deadline(time.Hour))
			r.restart()
			if !tc.bare {
				mustReconcile(t, r, o)
			}
			pastDeadline(r, o)
			tc.run(t, r, o)
			told := 1
			if tc.untold {
				told = 0
			}
			late := func(l string) bool { return strings.HasPrefix(l, "Deletion takes longer than its deadline") }
			got := []int{
				r.countEvents("DeletionDeadlineExceeded"), r.called,
				metricValue(t, r.metrics, "graft_deletion_deadline_exceeded_total"),
				len(slices.DeleteFunc(r.events.Lines(), func(l string) bool { return !late(l) })),
			}
			expectEqual(t, tc.reason, "events, calls, metric, lines of log", slices.Repeat([]int{told}, 4), got)
			is := r.c.condition(t, o, reconciler.TypeDeleting)
			is.Message, _, _ = strings.Cut(is.Message, " To orphan it,")
			expectEqual(t, tc.reason, "Deleting", cmp.Or(tc.want, exceedsDeadline), is)
			expectEqual(
				t, "", "A deadline should orphan nothing", []string{"example.org/f"}, r.c.read(t, o).GetFinalizers(),
			)
		})
	}
}
