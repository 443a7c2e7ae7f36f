package managed

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "replay the random schedule of this seed alone")
	schedulesFlag = flag.Int("schedules", 100, "how many random schedules to run")
)

// A schedule is a managed resource to which all that can happen happens, in an
// order that a seed decides.
type schedule struct {
	t    *testing.T
	rand *rand.Rand
	log  []string

	api     *testkit.API
	outside *outside
	way     way
	r       *Reconciler

	// pending are faults that the next writes will meet.
	pending []fault

	// What must not be lost.
	name     string
	foreign  map[xpv2.ConditionType]string
	notes    map[string]string
	region   string
	resolved bool
	deleted  bool
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	t.Helper()

	s := &schedule{
		t: t, rand: rand.New(rand.NewPCG(seed, seed)), //nolint:gosec // Not for secrets.
		api: testkit.NewAPI(bucket()), outside: newOutside(),
		foreign: map[xpv2.ConditionType]string{}, notes: map[string]string{},
	}

	all := ways()
	names := make([]string, 0, len(all))

	for n := range all {
		names = append(names, n)
	}

	slices.Sort(names)

	n := names[s.rand.IntN(len(names))]
	s.way = all[n]
	s.note("seed %d, %s", seed, n)

	s.api.Before = func(_ context.Context, r testkit.Request) error { return s.meet(r, true) }
	s.api.After = func(_ context.Context, r testkit.Request) error { return s.meet(r, false) }
	s.restart()

	return s
}

func (s *schedule) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *schedule) failf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\nschedule:\n  %s\nreplay with: go test ./pkg/managed -run TestRandomSchedules -seed N", fmt.Sprintf(format, args...), strings.Join(s.log, "\n  "))
}

// meet disturbs a request, with a fault or a write of another writer.
func (s *schedule) meet(r testkit.Request, before bool) error {
	if before && s.rand.IntN(12) == 0 {
		s.note("    before %s:", r.Verb)
		s.foreignWrite()
	}

	if !isWrite(r) || len(s.pending) == 0 {
		return nil
	}

	fn := s.pending[0].after
	if before {
		fn = s.pending[0].before
	}

	if fn == nil {
		return nil
	}

	s.pending = s.pending[1:]
	err := fn(r)
	s.note("    %s: before=%t %v", r.Verb, before, err)

	return err
}

func (s *schedule) restart() {
	s.note("restart")
	s.r = newBucketReconciler(s.api, append(s.way.opts(s.api), connects(s.outside.client()))...)
}

// foreignWrite writes to the object as another writer does.
func (s *schedule) foreignWrite() {
	b := get(s.t, s.api)
	if b.GetName() == "" {
		return
	}

	var err error

	switch s.rand.IntN(3) {
	case 0:
		c := xpv2.Condition{Type: xpv2.ConditionType(fmt.Sprintf("Foreign%d", s.rand.IntN(3))), Status: corev1.ConditionTrue, Message: fmt.Sprint(s.rand.IntN(1000))}
		s.note("  foreign condition %s %s", c.Type, c.Message)
		b.SetConditions(c)
		err = s.api.Server().Status().Update(context.Background(), b)
		s.foreign[c.Type] = c.Message
	case 1:
		k, v := fmt.Sprintf("example.org/note%d", s.rand.IntN(3)), fmt.Sprint(s.rand.IntN(1000))
		if s.way.clobbers {
			k = fmt.Sprintf("example.org/note%d", len(s.notes))
		}

		s.note("  foreign annotation %s=%s", k, v)
		meta.AddAnnotations(b, map[string]string{k: v})
		err = s.api.Server().Update(context.Background(), b)
		s.notes[k] = v
	case 2:
		s.region = fmt.Sprint("region-", s.rand.IntN(1000))
		s.note("  spec %s", s.region)
		b.Spec.ForProvider.Region = s.region
		err = s.api.Server().Update(context.Background(), b)
	}

	if err != nil {
		s.failf("write of another writer: %v", err)
	}
}

func (s *schedule) step() {
	switch s.rand.IntN(14) {
	case 0, 1:
		s.foreignWrite()
	case 2:
		s.note("freeze")

		if err := s.api.Freeze(context.Background(), bucket()); client.IgnoreNotFound(err) != nil {
			s.failf("Freeze: %v", err)
		}
	case 3, 4:
		s.note("thaw")
		s.api.Thaw()
	case 5:
		s.restart()
	case 6, 7:
		all := faults()
		names := []string{"Conflict", "Error", "LostAnswer"}
		n := names[s.rand.IntN(len(names))]

		for range 1 + s.rand.IntN(3)*s.rand.IntN(10) {
			s.pending = append(s.pending, all[n])
		}

		s.note("next %d writes: %s", len(s.pending), n)
	default:
		s.reconcile()
	}

	s.check()
}

func (s *schedule) reconcile() bool {
	before := s.api.Writes()
	result, err := s.r.Reconcile(context.Background(), request())
	s.note("reconcile: %+v %v, %d writes, name %q", result, err, s.api.Writes()-before, meta.GetExternalName(get(s.t, s.api)))

	//nolint:staticcheck // Upstream asks for a requeue this way.
	return err == nil && !result.Requeue && s.api.Writes() == before
}

// check what must hold at any time.
func (s *schedule) check() {
	s.t.Helper()

	b := get(s.t, s.api)
	if b.GetName() == "" {
		return
	}

	name := meta.GetExternalName(b)
	if s.name != "" && name != s.name {
		s.failf("external name: want %q for ever, got %q", s.name, name)
	}

	s.name = name

	if n := s.outside.creates; n > 1 && !s.resolved {
		s.failf("external resources created: %d", n)
	}

	for t, m := range s.foreign {
		if c := b.GetCondition(t); c.Message != m {
			s.failf("condition %s: want %q, got %+v", t, m, c)
		}
	}

	for k, v := range s.notes {
		if got := b.GetAnnotations()[k]; got != v {
			s.failf("annotation %s: want %q, got %q", k, v, got)
		}
	}

	if s.region != b.Spec.ForProvider.Region {
		s.failf("region: want %q, got %q", s.region, b.Spec.ForProvider.Region)
	}
}

// calm lets things come to rest.
func (s *schedule) calm() {
	s.note("calm")
	s.api.Thaw()
	s.api.Before, s.api.After = nil, nil

	for quiet, n := 0, 0; quiet < 3; n++ {
		if n > 25 {
			s.failf("no rest after %d reconciles", n)
		}

		if quiet++; !s.reconcile() {
			quiet = 0
		}

		s.check()
	}
}

// rest fails the test if what is at rest is not as it should be.
func (s *schedule) rest() {
	b := get(s.t, s.api)

	if meta.ExternalCreateIncomplete(b) {
		// Upstream's guard: an operator has to look.
		s.resolved = true
		ids := s.outside.ids()
		s.note("operator: found %v", ids)

		if len(ids) > 0 {
			meta.SetExternalName(b, ids[0])
		}

		meta.RemoveAnnotations(b, meta.AnnotationKeyExternalCreatePending)

		if err := s.api.Server().Update(context.Background(), b); err != nil {
			s.failf("operator: %v", err)
		}

		s.calm()

		b = get(s.t, s.api)
	}

	if ids := s.outside.ids(); len(ids) != 1 || meta.GetExternalName(b) != ids[0] || b.Status.AtProvider.ID != ids[0] || s.outside.regions[ids[0]] != s.region {
		s.failf("at rest: external resources %v (%v), name %q, status %+v, region %q", ids, s.outside.regions, meta.GetExternalName(b), b.Status, s.region)
	}

	if b.GetCondition(xpv2.TypeReady).Status != corev1.ConditionTrue || b.GetCondition(xpv2.TypeSynced).Status != corev1.ConditionTrue || !meta.FinalizerExists(b, FinalizerName) {
		s.failf("at rest: %+v, finalizers %v", b.Status, b.GetFinalizers())
	}
}

func (s *schedule) delete() {
	s.note("delete")

	if err := s.api.Server().Delete(context.Background(), get(s.t, s.api)); err != nil {
		s.failf("Delete: %v", err)
	}

	s.deleted = true
	s.api.Before = func(_ context.Context, r testkit.Request) error { return s.meet(r, true) }
	s.api.After = func(_ context.Context, r testkit.Request) error { return s.meet(r, false) }

	for range 15 {
		s.step()
	}

	s.calm()

	err := s.api.Server().Get(context.Background(), request().NamespacedName, bucket())
	if !kerrors.IsNotFound(err) || len(s.outside.ids()) != 0 || s.r.seam.Memory().Len() != 0 {
		s.failf("after deletion: object %v, external resources %v, remembered %d", err, s.outside.ids(), s.r.seam.Memory().Len())
	}
}

func (s *schedule) run() {
	for range 30 {
		s.step()
	}

	s.calm()
	s.rest()
	s.delete()
}

// In any order of events there is never a second external resource, and no write of
// another writer is lost.
func TestRandomSchedules(t *testing.T) {
	if *seedFlag != 0 {
		newSchedule(t, *seedFlag).run()
		return
	}

	for seed := range uint64(*schedulesFlag) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) { newSchedule(t, seed+1).run() })
	}
}

// FuzzSchedules lets a fuzzer choose the schedule.
func FuzzSchedules(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { newSchedule(t, seed).run() })
}
