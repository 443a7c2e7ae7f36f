package managed_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/fake/kit"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

const (
	// differentialSteps is the number of steps. GRAFT_DIFFERENTIAL_STEPS sets another one.
	differentialSteps = 2000

	// stepsPerLife is the number of steps of one managed resource, unless a difference ends its life.
	stepsPerLife = 12
)

// TestDifferential has random providers and users act on one managed resource with upstream's reconciler and on another
// one with Graft's defaults. After each step both have the same state and their providers had the same calls, unless a
// line of NewReconciler's comment explains the difference. The two go separate ways then, and the next pair begins.
func TestDifferential(t *testing.T) {
	steps := differentialSteps
	if s := os.Getenv("GRAFT_DIFFERENTIAL_STEPS"); s != "" {
		n, err := strconv.Atoi(s)
		kit.Must(t, err)
		steps = n
	}
	explained := map[string]int{}
	for seed, done := uint64(1), 0; done < steps; seed++ {
		synctest.Test(t, func(t *testing.T) {
			n, why := differ(t, seed, steps-done)
			done += n
			explained[why]++
		})
		if t.Failed() {
			t.Fatalf("The difference is of seed %d.", seed)
		}
	}
	t.Logf("%d steps, and the lives that ended with a difference, by the line that explains it: %v", steps, explained)
	for _, line := range []string{"a", "b", "c"} {
		if explained[line] == 0 {
			t.Errorf("\nEach line should explain a difference, or the search shows little.\nline (%s): none", line)
		}
	}
}

// differ leads one life, and returns its steps and the line that explains why it ended.
func differ(t *testing.T, seed uint64, most int) (int, string) {
	t.Helper()
	user := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // The same life for the same seed.
	theirs := newSide(seed, func(m *testkit.API, c managed.ExternalConnector) reconcile.Reconciler {
		return upstream.NewReconciler(m.Manager(), resource.ManagedKind(testkit.BucketKind()),
			upstream.WithManagementPolicies(), upstream.WithInitializers(), upstream.WithExternalConnector(c))
	})
	ours := newSide(seed, func(m *testkit.API, c managed.ExternalConnector) reconcile.Reconciler {
		return managed.NewReconciler(m.Manager(), resource.ManagedKind(testkit.BucketKind()),
			managed.WithManagementPolicies(), managed.WithInitializers(), managed.WithExternalConnector(c))
	})
	for n := range min(most, stepsPerLife) {
		act, wait := user.IntN(len(acts())), time.Duration(user.IntN(40))*time.Second
		for _, s := range []*side{theirs, ours} {
			s.act(t, act)
			s.reconcile(n)
		}
		want, got := theirs.observe(t), ours.observe(t)
		if diff := cmp.Diff(want, got); diff != "" {
			if why := explain(t, want, got, ours); why != "" {
				return n + 1, why
			}
			t.Errorf("\nstep %d, act %d: -upstream, +Graft:\n%s\ncalls: %v", n, act, diff, ours.calls)
			return n + 1, ""
		}
		time.Sleep(wait)
	}
	return min(most, stepsPerLife), "none"
}

// A side is one of the two: its API server, its external system and its reconciler.
type side struct {
	api    *testkit.API
	r      reconcile.Reconciler
	seed   uint64
	exists bool

	calls  []string
	result reconcile.Result
	failed bool

	// sets has what the calls of the last step have set: names, annotations, status or spec.
	sets map[string]bool
}

func newSide(
	seed uint64, build func(*testkit.API, managed.ExternalConnector) reconcile.Reconciler,
) *side {
	s := &side{api: testkit.NewAPI(kit.NewBucket()), seed: seed}
	s.r = build(s.api, kit.NewConnector(managed.ExternalClientFns{
		ObserveFn: func(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
			r := s.call("observe")
			b := kit.AsBucket(mg)
			if s.exists && r.IntN(3) > 0 {
				s.sets["status"] = true
				b.Status.AtProvider.ID = fmt.Sprint(r.IntN(3))
				b.SetConditions(xpv2.Available())
			}
			o := managed.ExternalObservation{ResourceExists: s.exists, ResourceUpToDate: r.IntN(3) > 0}
			if s.exists && r.IntN(4) == 0 {
				s.sets["spec"] = true
				b.Spec.ForProvider.Region, o.ResourceLateInitialized = fmt.Sprint("r", r.IntN(3)), true
			}
			s.annotate(r, b)
			return o, s.errorOf(r)
		},
		CreateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
			r := s.call("create")
			err := s.errorOf(r)
			s.exists = err == nil
			s.annotate(r, kit.AsBucket(mg))
			return managed.ExternalCreation{}, err
		},
		UpdateFn: func(_ context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
			r := s.call("update")
			s.annotate(r, kit.AsBucket(mg))
			return managed.ExternalUpdate{}, s.errorOf(r)
		},
		DeleteFn: func(_ context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
			r := s.call("delete")
			err := s.errorOf(r)
			s.exists = s.exists && (err != nil || r.IntN(3) == 0)
			s.annotate(r, kit.AsBucket(mg))
			return managed.ExternalDelete{}, err
		},
	}))
	return s
}

// call notes a call, and returns what decides its result: the same for both sides.
func (s *side) call(what string) *rand.Rand {
	s.calls = append(s.calls, what)
	return rand.New(rand.NewPCG(s.seed, uint64(len(s.calls)))) //nolint:gosec // As above.
}

func (s *side) errorOf(r *rand.Rand) error {
	return [...]error{nil, nil, nil, nil, errors.New("boom"), context.DeadlineExceeded}[r.IntN(6)]
}

func (s *side) annotate(r *rand.Rand, b *v1alpha1.Bucket) {
	switch r.IntN(6) {
	case 0:
		s.sets["name"] = true
		meta.SetExternalName(b, fmt.Sprint("id-", r.IntN(4)))
	case 1:
		s.sets["annotation"] = true
		meta.AddAnnotations(b, map[string]string{"example.org/etag": fmt.Sprint(r.IntN(4))})
	}
}

// acts are what a user does before a step.
func acts() []kit.BucketModifier {
	return []kit.BucketModifier{
		nil, nil, nil, nil,
		func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region += "x" },
		kit.WithPausedAnnotation,
		kit.WithoutAnnotation(meta.AnnotationKeyReconciliationPaused),
		kit.WithPolicies(xpv2.ManagementActionObserve),
		kit.WithPolicies(xpv2.ManagementActionAll),
		kit.WithExternalName("by-hand"),
		kit.WithoutAnnotation(meta.AnnotationKeyExternalCreatePending),
		func(b *v1alpha1.Bucket) { b.SetFinalizers(append(b.GetFinalizers(), "example.org/other")) },
	}
}

func (s *side) act(t *testing.T, n int) {
	t.Helper()
	mod, b := acts()[n], kit.GetBucket(t, s.api)
	switch {
	case b.GetUID() == "" || mod == nil && n != 0:
	case n == 0 && len(s.calls)%3 == 2:
		kit.Must(t, client.IgnoreNotFound(s.api.Server().Delete(t.Context(), b)))
	case mod != nil && !meta.WasDeleted(b):
		kit.UpdateBucket(t, s.api, "b", mod)
	}
}

func (s *side) reconcile(n int) {
	s.sets = map[string]bool{}
	s.calls = append(s.calls, fmt.Sprint(n))
	res, err := s.r.Reconcile(context.Background(), kit.Request())
	s.result, s.failed = res, err != nil
}

// An observed is what a user sees of a side after a step.
type observed struct {
	UID         types.UID
	Calls       []string
	Result      reconcile.Result
	Failed      bool
	Spec        v1alpha1.BucketSpec
	Status      v1alpha1.Observation
	Finalizers  []string
	Annotations map[string]string
	Deleted     bool
	Synced      string
	Ready       string
}

func (s *side) observe(t *testing.T) observed {
	t.Helper()
	b := kit.GetBucket(t, s.api)
	annotations := maps.Clone(b.GetAnnotations())
	maps.DeleteFunc(annotations, func(k, _ string) bool { return strings.HasPrefix(k, "graft.crossplane.io/") })
	text := func(c xpv2.ConditionType) string {
		is := b.GetCondition(c)
		return fmt.Sprint(is.Status, " ", is.Reason, " ", is.Message)
	}
	return observed{
		UID: b.GetUID(), Calls: slices.Clone(s.calls), Result: s.result, Failed: s.failed, Spec: b.Spec,
		Status: b.Status.AtProvider, Finalizers: b.GetFinalizers(), Annotations: annotations,
		Deleted: meta.WasDeleted(b), Synced: text(xpv2.TypeSynced), Ready: text(xpv2.TypeReady),
	}
}

// explain returns the lines of NewReconciler's comment that explain the difference, or nothing. A line explains what it
// names, and only after a step in which it applies.
func explain(t *testing.T, want, got observed, ours *side) string {
	t.Helper()
	lines := []struct {
		name    string
		applies bool
		masks   func(o *observed)
	}{
		{"a", deletion.ConditionOf(kit.GetBucket(t, ours.api)).Reason != "", func(o *observed) {
			if o.Ready = ""; got.Synced == "True ReconcileSuccess " {
				o.Synced = "" // Upstream keeps an error that is out of date.
			}
		}},
		{"b", ours.sets["name"] || ours.sets["annotation"], func(o *observed) { o.Annotations = nil }},
		{"c", ours.sets["status"], func(o *observed) { o.Status, o.Ready = v1alpha1.Observation{}, "" }},
	}
	ended := got.Annotations[meta.AnnotationKeyExternalCreateFailed] +
		got.Annotations[meta.AnnotationKeyExternalCreateSucceeded]
	if slices.Equal(want.Calls, append(slices.Clone(got.Calls), "create")) &&
		strings.Contains(ended, time.Now().Format(time.RFC3339)) {
		return "f" // The last create ended in this second.
	}
	for i, l := range lines {
		if !l.applies {
			continue
		}
		l.masks(&want)
		l.masks(&got)
		if cmp.Equal(want, got) {
			return lines[i].name
		}
	}
	return ""
}
