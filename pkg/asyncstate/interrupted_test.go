package asyncstate_test

import (
	"context"
	"encoding/json"
	stderrors "errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// crashed returns the world in which a process began to create b and died a while
// later, and the next process.
func crashed(t *testing.T, k clientKind, after time.Duration, o ...asyncstate.TrackerOption) (*world, *process) {
	t.Helper()

	w := newWorld(t, k, bucket("b"))
	w.manual = true
	w.options = o
	p := w.start()
	reconciled(t, p, "b")
	pass(after)
	p.kill()
	p = w.start()

	return w, p
}

func TestAnswerToResumptionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := crashed(t, resumer, 6*time.Minute)

		// What the writer tries by itself is not what is tested here.
		for range 3 {
			n := 1
			p.faults(nil, func(verb string, _ client.Object) error {
				if n--; n >= 0 && verb == testkit.Patch {
					return errors.New("connection reset")
				}

				return nil
			})
			reconciled(t, p, "b")
		}

		pass(time.Hour)
		reconciled(t, p, "b")

		if got := w.cloud.names("uid-1"); len(got) != 1 || meta.GetExternalName(w.get("b")) != got[0] {
			t.Errorf("The cloud has %v: %s", got, describe(w.get("b")))
		}
	})
}

// What an interrupted create made has to be found out before it can be deleted,
// however long that has to wait.
func TestDeleteWaitsForRepetition(t *testing.T) {
	backoff := func(t *testing.T, w *world, p *process) {
		t.Helper()
		w.cloud.refuses(errQuota)
		reconciled(t, p, "b")
		pass(time.Second)
		w.cloud.refuses(nil)
	}
	queue := func(t *testing.T, _ *world, p *process) {
		t.Helper()
		reconciled(t, p, "other")
	}

	cases := map[string]struct {
		reason string
		kind   clientKind
		plain  bool
		prime  func(t *testing.T, w *world, p *process)
	}{
		"Backoff":              {reason: "A repetition that failed is backed off from.", kind: token, prime: backoff},
		"BackoffUnderUpstream": {reason: "As above, without Graft's reconciler.", kind: token, plain: true, prime: backoff},
		"Queue":                {reason: "The repetition waits for other objects.", kind: token, prime: queue},
		"QueueOfResumption":    {reason: "As above, for a client that resumes.", kind: resumer, prime: queue},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, tc.kind, bucket("b"), bucket("other"))
			w.manual, w.plain = true, tc.plain
			w.options = []asyncstate.TrackerOption{asyncstate.WithMaxOperations(1), asyncstate.WithBackoff(time.Minute, time.Minute)}
			p := w.start()

			reconciled(t, p, "b")
			pass(6 * time.Minute)
			p.kill()
			p = w.start()
			tc.prime(t, w, p)
			w.delete("b")
			reconciled(t, p, "b")

			if n := w.cloud.count(asyncstate.Delete); n != 0 {
				t.Errorf("\n%s\nA delete was begun of an unknown resource", tc.reason)
			}

			if got := reason(w.get("b"), reconciler.TypeDeleting); !tc.plain && got != reconciler.ReasonWaitingForAsyncOperation {
				t.Errorf("\n%s\nDeleting: %s", tc.reason, describe(w.get("b")))
			}

			for range 20 {
				pass(2 * time.Minute)

				if !w.gone() {
					reconciled(t, p, "b")
				}
			}

			if got := w.cloud.names("uid-1"); !w.gone() || len(got) > 0 {
				t.Errorf("\n%s\nThe cloud has %v: %s", tc.reason, got, describe(w.get("b")))
			}
		})
	}
}

// That the repetition of a create was refused says nothing of the create itself, which
// another process may still have in progress.
func TestDelete_RepetitionRefused(t *testing.T) {
	cases := map[string]struct {
		kind    clientKind
		options []asyncstate.TrackerOption
	}{
		"Deterministic": {kind: deterministic},
		"Finder":        {kind: finder, options: []asyncstate.TrackerOption{asyncstate.WithIdempotentTokens()}},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, tc.kind, bucket("b"))
			w.manual, w.options = true, tc.options

			// The create of the first process makes it two minutes later.
			reconciled(t, w.start(), "b")
			pass(3 * time.Minute)

			p := w.start()

			w.cloud.refuses(errQuota)
			reconciled(t, p, "b")
			synctest.Wait()
			w.cloud.refuses(nil)

			if n := w.cloud.count(asyncstate.Create); n != 2 {
				t.Fatalf("%d creates, want 2: %s", n, describe(w.get("b")))
			}

			w.delete("b")

			for n := 0; n < 10 && !w.gone(); n++ {
				reconciled(t, p, "b")
				pass(11 * time.Minute)
			}

			if got := w.cloud.names(); !w.gone() || len(got) > 0 {
				t.Errorf("The cloud has %v: %s", got, describe(w.get("b")))
			}
		})
	}
}

// What can't be gone on with any more keeps its record.
func TestRecordOutlivesStoppedTracker(t *testing.T) {
	for _, k := range []clientKind{resumer, token, deterministic} {
		bubble(t, string(k), func(t *testing.T) {
			after := 6 * time.Minute
			if k == deterministic {
				after = 3 * time.Minute // It would be observed to exist.
			}

			w, p := crashed(t, k, after)

			// Between the write of the record and the beginning of the
			// operation the tracker is stopped.
			p.faults(nil, func(verb string, _ client.Object) error {
				if verb == testkit.Patch {
					p.cancel()
					synctest.Wait()
				}

				return nil
			})
			reconciled(t, p, "b")

			if record(w.get("b")) == "" {
				t.Errorf("The record of an interrupted create is gone: %s", describe(w.get("b")))
			}

			p = w.start()
			reconciled(t, p, "b")
			pass(time.Hour)
			reconciled(t, p, "b")

			if got := w.cloud.names("uid-1"); len(got) != 1 || record(w.get("b")) != "" {
				t.Errorf("The cloud has %v: %s", got, describe(w.get("b")))
			}
		})
	}
}

// Whatever ends the record of a create leaves upstream's announcement of it
// concluded, or the object would be stuck.
func TestAnnouncementIsConcluded(t *testing.T) {
	named := func(w *world) {
		w.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "theirs") })
		w.cloud.add("theirs", "")
	}

	cases := map[string]struct {
		reason string
		then   func(w *world)
	}{
		"TurnsOutToExist": {reason: "A user says which external resource it is, and there is nothing left to do.", then: func(*world) {}},
		"Update": {
			reason: "It is not as it should be.",
			then: func(w *world) {
				w.edit("b", func(b *v1alpha1.Bucket) { b.Spec.ForProvider.Region = "elsewhere" })
			},
		},
		"Delete": {reason: "It is to be deleted.", then: func(w *world) { w.delete("b") }},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, nothing, bucket("b"))
			w.manual = true
			p := w.start()

			// The create is announced, and the answer to that is lost.
			p.faults(nil, func(verb string, o client.Object) error {
				if verb == testkit.Update && record(o) != "" {
					return errors.New("connection reset")
				}

				return nil
			})
			reconciled(t, p, "b")
			p.faults(nil, nil)

			if !meta.ExternalCreateIncomplete(w.get("b")) || w.cloud.count(asyncstate.Create) != 0 {
				t.Fatal(describe(w.get("b")))
			}

			named(w)
			tc.then(w)

			// At first the API server can't be reached.
			p.faults(away, nil)
			_, _ = p.reconcile("b") // It may fail.
			p.faults(nil, nil)

			for range 3 {
				reconciled(t, p, "b")
				pass(15 * time.Minute)
			}

			b := w.get("b")
			if meta.ExternalCreateIncomplete(b) || record(b) != "" || w.cloud.count(asyncstate.Create) != 0 {
				t.Errorf("\n%s\n%s", tc.reason, describe(b))
			}

			if got := w.cloud.region("theirs"); got != b.Spec.ForProvider.Region {
				t.Errorf("\n%s\nThe region is %q", tc.reason, got)
			}

			if !w.gone() && name == "Delete" {
				t.Errorf("\n%s\n%s", tc.reason, describe(b))
			}
		})
	}
}

// A name that is stored before there is anything does not tell that a create made nothing:
// it may still be in progress.
func TestNamedBeforeItIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		creates := 0

		w := acting(t, false, nil)
		w.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
			c := actor(false, func(ctx context.Context, _ resource.Managed) error {
				creates++
				return stderrors.Join(asyncstate.SetExternalName(ctx, "chosen"), sleep(ctx, 10*time.Minute))
			})
			c.ObserveFn = func(context.Context, resource.Managed) (upstream.ExternalObservation, error) {
				return upstream.ExternalObservation{ResourceExists: creates > 1, ResourceUpToDate: true}, nil
			}

			return c, nil
		}
		p := w.start()

		reconciled(t, p, "b")
		pass(time.Minute)
		p.kill()
		p = w.start()

		for _, want := range []int{1, 2} {
			reconciled(t, p, "b")
			synctest.Wait()

			if creates != want {
				t.Errorf("%d creates, want %d: %s", creates, want, describe(w.get("b")))
			}

			pass(2 * time.Hour)
		}
	})
}

// Who resumes may have a clock that is behind.
func TestClockIsBehind(t *testing.T) {
	for _, k := range []clientKind{finder, resumer, token, deterministic, namedMid} {
		bubble(t, string(k), func(t *testing.T) {
			w, p := crashed(t, k, 6*time.Minute)

			w.edit("b", func(b *v1alpha1.Bucket) {
				pending := func() string { return `"pending":"` + b.GetAnnotations()[meta.AnnotationKeyExternalCreatePending] }
				had := pending()
				meta.SetExternalCreatePending(b, time.Now().Add(2*time.Hour))
				meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: strings.Replace(record(b), had, pending(), 1)})
			})

			// At first the API server can't be reached.
			p.faults(away, nil)
			_, _ = p.reconcile("b") // It may fail.
			p.faults(nil, nil)

			for range 3 {
				reconciled(t, p, "b")
				pass(15 * time.Minute)
			}

			if b := w.get("b"); meta.ExternalCreateIncomplete(b) || record(b) != "" || reason(b, asyncstate.TypeOperation) != asyncstate.ReasonFinished {
				t.Error(describe(b))
			}
		})
	}
}

// A Finder that finds nothing needs no patience if there are tokens, too: the create
// is repeated at once. But nothing is made only to be deleted.
func TestFinderWithTokens(t *testing.T) {
	cases := map[string]struct {
		reason   string
		deleting bool
		creates  int
		gone     bool
	}{
		"Wanted":  {reason: "To repeat it can't make a second one.", creates: 2},
		"Deleted": {reason: "What wasn't made need not be deleted, once it can't be made any more.", deleting: true, creates: 1, gone: true},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w, p := crashed(t, finder, 3*time.Minute, asyncstate.WithIdempotentTokens())

			if tc.deleting {
				w.delete("b")
			}

			reconciled(t, p, "b")
			pass(11 * time.Minute)
			reconciled(t, p, "b")

			if n := w.cloud.count(asyncstate.Create); n != tc.creates || w.gone() {
				t.Errorf("\n%s\n%d creates, want %d: %s", tc.reason, n, tc.creates, describe(w.get("b")))
			}

			pass(time.Hour)
			reconciled(t, p, "b")

			if n := w.cloud.count(asyncstate.Create); n != tc.creates || w.gone() != tc.gone || len(w.cloud.names()) != tc.creates-1 {
				t.Errorf("\n%s\nIn the end %d creates, and the cloud has %v: %s", tc.reason, n, w.cloud.names(), describe(w.get("b")))
			}
		})
	}
}

// What a Finder found is observed by a client that was connected with its name.
func TestFound_ConnectsAgain(t *testing.T) {
	cases := map[string]struct {
		reason   string
		deleting bool
	}{
		"Wanted":  {reason: "A client that takes the name when it is connected sees nothing before, and would create a second resource."},
		"Deleted": {reason: "It sees nothing to delete, either, and the resource would be leaked.", deleting: true},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, finder, bucket("b"))
			w.manual = true
			w.graft = []managed.ReconcilerOption{managed.WithCreationGracePeriod(0)}
			w.connect = func(p *process, mg resource.Managed) (upstream.ExternalClient, error) {
				return p.client(meta.GetExternalName(mg)), nil
			}
			p := w.start()

			reconciled(t, p, "b")
			pass(6 * time.Minute)
			p.kill()
			p = w.start()

			if tc.deleting {
				w.delete("b")
			}

			for n := 0; n < 3 && !w.gone(); n++ {
				reconciled(t, p, "b")
				pass(11 * time.Minute)
			}

			got, want := w.cloud.names("uid-1"), 1
			if tc.deleting {
				want = 0
			}

			if n := len(w.said.Events("FoundExternalResource")); n != 1 {
				t.Errorf("\n%s\n%d events say that it was found", tc.reason, n)
			}

			if len(got) != want || w.gone() != tc.deleting || w.cloud.count(asyncstate.Create) != 1 {
				t.Errorf("\n%s\n%d creates, and the cloud has %v: %s", tc.reason, w.cloud.count(asyncstate.Create), got, describe(w.get("b")))
			}
		})
	}
}

// skew has the record of b, as it is stored, come from a clock that is ahead by d.
func skew(t *testing.T, w *world, d time.Duration) {
	t.Helper()

	w.edit("b", func(b *v1alpha1.Bucket) {
		fields := map[string]any{}
		if err := json.Unmarshal([]byte(record(b)), &fields); err != nil {
			t.Fatal(err)
		}

		for _, k := range []string{"started", "deadline"} {
			text, _ := fields[k].(string)

			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}

			fields[k] = at.Add(d).Format(time.RFC3339)
		}

		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}

		meta.AddAnnotations(b, map[string]string{asyncstate.AnnotationKeyOperation: string(text)})
	})
}

// When absence is believed doesn't depend on the clock of the process that died.
func TestAbsence_CountsFromFirstSight(t *testing.T) {
	const decade = 10 * 365 * 24 * time.Hour

	cases := map[string]struct {
		reason string
		skew   time.Duration
		option asyncstate.TrackerOption
		until  time.Duration
	}{
		"InStep":            {reason: "As long as an operation may take, from when the record was first seen.", until: time.Hour},
		"Ahead":             {reason: "A clock that is ten years ahead does not make the object wait for ten years.", skew: decade, until: time.Hour},
		"Behind":            {reason: "A clock that is ten years behind does not prove that the other process is dead.", skew: -decade, until: time.Hour},
		"ALittleBehind":     {reason: "Nor does one that is 50 minutes behind.", skew: -50 * time.Minute, until: time.Hour},
		"AbsenceAfter":      {reason: "The provider sets how long another process can be running the create.", option: asyncstate.WithAbsenceAfter(10 * time.Minute), until: 10 * time.Minute},
		"AbsenceAfterAhead": {reason: "As above, ten years ahead.", skew: decade, option: asyncstate.WithAbsenceAfter(10 * time.Minute), until: 10 * time.Minute},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, finder, bucket("b"))
			if tc.option != nil {
				w.options = append(w.options, tc.option)
			}

			p := w.start()

			pass(3 * time.Minute)
			p.kill()
			skew(t, w, tc.skew)
			pass(5 * time.Minute)
			w.start()

			pass(tc.until - time.Second)

			if n := w.cloud.count(asyncstate.Create); n != 1 {
				t.Errorf("\n%s\n%d creates while the other process may be running: %s", tc.reason, n, describe(w.get("b")))
			}

			pass(2*time.Second + w.cloud.takes)

			if b := w.get("b"); meta.GetExternalName(b) != "id-0001" || w.cloud.count(asyncstate.Create) != 2 {
				t.Errorf("\n%s\n%d creates: %s", tc.reason, w.cloud.count(asyncstate.Create), describe(b))
			}
		})
	}
}

// A create that was begun by a clock that is ahead can be repeated more than once.
func TestRepetition_ClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, token, bucket("b"))
		p := w.start()

		pass(3 * time.Minute)
		p.kill()
		skew(t, w, 3*time.Hour)

		p = w.start()
		pass(3 * time.Minute)
		p.kill()
		w.start()
		pass(30 * time.Minute)

		if b := w.get("b"); meta.GetExternalName(b) != "id-0001" || len(w.cloud.names()) != 1 {
			t.Error(describe(b))
		}
	})
}

// A create that another process repeats may make a second external resource once the first
// is deleted: external systems forget tokens and names with what they made.
func TestDelete_WaitsForRepetitionElsewhere(t *testing.T) {
	for _, k := range []clientKind{token, deterministic} {
		bubble(t, string(k), func(t *testing.T) {
			w := newWorld(t, k, bucket("b"))

			for range 2 {
				p := w.start()
				pass(3 * time.Minute)
				p.kill()
			}

			// The process that was replaced stores what it made after all.
			w.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, "of-uid-1") })
			w.cloud.add("of-uid-1", "")
			w.delete("b")
			w.start()
			pass(50 * time.Minute)

			if n := w.cloud.count(asyncstate.Delete); n != 0 || reason(w.get("b"), reconciler.TypeDeleting) != reconciler.ReasonCreateResultUnknown {
				t.Errorf("%d deletes while the create may be repeated: %s", n, describe(w.get("b")))
			}

			pass(30 * time.Minute)

			if got := w.cloud.names(); !w.gone() || len(got) > 0 {
				t.Errorf("The cloud has %v: %s", got, describe(w.get("b")))
			}
		})
	}
}

// What appears after the first look-up is found soon.
func TestFinder_IsAskedAgain(t *testing.T) {
	cases := map[string]struct {
		reason string
		after  time.Duration
		within time.Duration
		answer func() (asyncstate.Finding, error)
	}{
		"AbsentForSeconds": {
			reason: "The request was in progress when the process was killed.",
			after:  3 * time.Second, within: 8 * time.Second, answer: func() (asyncstate.Finding, error) { return asyncstate.Absent(), nil },
		},
		"AbsentForMinutes": {
			reason: "A minute is the most.",
			after:  20 * time.Minute, within: 21*time.Minute + time.Second, answer: func() (asyncstate.Finding, error) { return asyncstate.Absent(), nil },
		},
		"FoundAndFailsForSeconds": {
			reason: "The result of a look-up that failed is not used.",
			after:  3 * time.Second, within: 8 * time.Second,
			answer: func() (asyncstate.Finding, error) { return asyncstate.Found("wrong"), errQuota },
		},
		"UnknownForSeconds": {
			reason: "The external system cannot tell yet.",
			after:  3 * time.Second, within: 8 * time.Second, answer: func() (asyncstate.Finding, error) { return asyncstate.Finding{}, nil },
		},
		"UnknownForHours": {
			reason: "Five minutes is the most.",
			after:  3 * time.Hour, within: 3*time.Hour + 5*time.Minute + time.Second, answer: func() (asyncstate.Finding, error) { return asyncstate.Finding{}, nil },
		},
		"FailsForSeconds": {
			reason: "The external system can't be asked.",
			after:  3 * time.Second, within: 8 * time.Second, answer: func() (asyncstate.Finding, error) { return asyncstate.Absent(), errQuota },
		},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, finder, bucket("b"))
			p := w.start()

			pass(6 * time.Minute)
			p.kill()

			began := time.Now()

			w.connect = w.late(func() (asyncstate.Finding, error, bool) {
				f, err := tc.answer()
				return f, err, time.Since(began) >= tc.after
			})
			p = w.start()
			pass(tc.within)

			if b := w.get("b"); meta.GetExternalName(b) != "id-0001" || record(b) != "" {
				t.Errorf("\n%s\nAfter %s: %s", tc.reason, tc.within, describe(b))
			}

			if n, most := p.reconciles.Load(), int64(20+tc.within/time.Minute); n > most {
				t.Errorf("\n%s\n%d reconciles, want %d at most", tc.reason, n, most)
			}
		})
	}
}

// A lateClient finds nothing until it is ready.
type lateClient struct {
	findingClient

	answer func() (f asyncstate.Finding, err error, ready bool)
}

// late connects clients that find nothing until they are ready.
func (w *world) late(answer func() (f asyncstate.Finding, err error, ready bool)) func(*process, resource.Managed) (upstream.ExternalClient, error) {
	return func(p *process, _ resource.Managed) (upstream.ExternalClient, error) {
		inner, _ := p.client().(findingClient)
		return lateClient{inner, answer}, nil
	}
}

func (c lateClient) Find(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
	if f, err, ready := c.answer(); !ready {
		return f, err
	}

	return c.findingClient.Find(ctx, mg, a)
}

// A create may fail after it made something, with an error that says nothing of it.
func TestFailedCreate_IsLookedUp(t *testing.T) {
	errTag := errors.New("cannot tag the resource")

	cases := map[string]struct {
		reason   string
		options  []asyncstate.TrackerOption
		plain    bool
		refused  bool
		deleting bool

		creates, left int
	}{
		"Wanted":     {reason: "A Finder is asked before a create that failed is repeated.", creates: 1, left: 1},
		"WithTokens": {reason: "Also if there are tokens, since the next attempt has another.", options: []asyncstate.TrackerOption{asyncstate.WithIdempotentTokens()}, creates: 1, left: 1},
		"Deleted":    {reason: "It is asked before an object goes whose create failed.", deleting: true, creates: 1},
		"Inline":     {reason: "It is asked, too, if a client that may have goroutines of its own began none.", options: []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines()}, creates: 1, left: 1},
		"InlineUnderUpstream": {
			reason: "As above, without Graft's reconciler.",
			plain:  true, options: []asyncstate.TrackerOption{asyncstate.WithOwnGoroutines()}, creates: 1, left: 1,
		},
		"Refused": {reason: "What was not made is absent at once, and made after the backoff.", refused: true, creates: 2, left: 1},
		"RefusedWithTokens": {
			reason: "An attempt that failed is not repeated with its token.", options: []asyncstate.TrackerOption{asyncstate.WithIdempotentTokens()},
			refused: true, creates: 2, left: 1,
		},
		"RefusedAndDeleted": {reason: "There is nothing to delete.", refused: true, deleting: true, creates: 1},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, finder, bucket("b"))
			w.options, w.plain = tc.options, tc.plain
			w.cloud.takes = 0

			once := func() error {
				w.cloud.refuse, w.cloud.lose = nil, nil
				return errTag
			}

			if tc.refused {
				w.cloud.refuse = func(asyncstate.Type) error { return once() }
			} else {
				w.cloud.lose = once
			}

			p := w.start()

			pass(0)

			if tc.deleting {
				w.delete("b")
			}

			// Sooner than an interrupted create would be believed to be over.
			pass(time.Minute)

			if !w.gone() {
				reconciled(t, p, "b")
			}

			if n, got := w.cloud.count(asyncstate.Create), w.cloud.names("uid-1"); n != tc.creates || len(got) != tc.left || w.gone() != tc.deleting {
				t.Fatalf("\n%s\n%d creates, want %d; the cloud has %v", tc.reason, n, tc.creates, got)
			}

			if b := w.get("b"); !tc.deleting && meta.GetExternalName(b) != w.cloud.names()[0] {
				t.Errorf("\n%s\nThe cloud has %v: %s", tc.reason, w.cloud.names(), describe(b))
			}
		})
	}
}

// A create that may not be made any more is not repeated either.
func TestRepetition_HeedsPolicies(t *testing.T) {
	cases := map[string]struct {
		reason   string
		kind     clientKind
		deleting bool

		gone bool
		want xpv2.ConditionReason
	}{
		"Token":                {reason: "Only repeating it would tell its name: a person has to.", kind: token, want: asyncstate.ReasonResultUnknown},
		"TokenDeleted":         {reason: "Nor is anything made only to be deleted.", kind: token, deleting: true, want: asyncstate.ReasonResultUnknown},
		"Deterministic":        {reason: "It is absent once it can't be made any more.", kind: deterministic, want: asyncstate.ReasonFailed},
		"DeterministicDeleted": {reason: "There is nothing to delete.", kind: deterministic, deleting: true, gone: true},
	}

	for name, tc := range cases {
		bubble(t, name, func(t *testing.T) {
			w, p := crashed(t, tc.kind, 3*time.Minute)

			w.edit("b", func(b *v1alpha1.Bucket) {
				b.SetManagementPolicies(xpv2.ManagementPolicies{xpv2.ManagementActionObserve, xpv2.ManagementActionDelete})
			})

			if tc.deleting {
				w.delete("b")
			}

			for range 6 {
				if !w.gone() {
					_, _ = p.reconcile("b")
				}

				pass(15 * time.Minute)
			}

			b := w.get("b")
			if n := w.cloud.count(asyncstate.Create); n != 1 || w.gone() != tc.gone || reason(b, asyncstate.TypeOperation) != tc.want {
				t.Errorf("\n%s\n%d creates: %s", tc.reason, n, describe(b))
			}
		})
	}
}

// What has a handle is resumed, however the process ended.
func TestResume_Update(t *testing.T) {
	for _, end := range []string{"Killed", "Stopped", "StoppedInItsOwnWords"} {
		bubble(t, end, func(t *testing.T) {
			updates, resumed := 0, 0

			w := acting(t, true, nil)
			w.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) {
				c := actor(true, func(ctx context.Context, _ resource.Managed) error {
					updates++

					if err := asyncstate.SetHandle(ctx, "h"); err != nil {
						return err
					}

					err := sleep(ctx, 50*time.Minute)
					if end == "StoppedInItsOwnWords" {
						err = errQuota
					}

					return err
				})

				return struct {
					upstream.ExternalClient
					resumerFn
				}{c, func() error { resumed++; return nil }}, nil
			}
			p := w.start()

			reconciled(t, p, "b")
			pass(time.Minute)

			if end == "Killed" {
				p.kill()
			} else {
				p.stop()
			}

			p = w.start()

			pass(time.Minute)
			reconciled(t, p, "b")
			synctest.Wait()

			if b := w.get("b"); updates != 1 || resumed != 1 || record(b) != "" {
				t.Errorf("%d updates, resumed %d times: %s", updates, resumed, describe(b))
			}
		})
	}
}

type resumerFn func() error

func (fn resumerFn) Resume(context.Context, resource.Managed, asyncstate.Attempt) error { return fn() }

// That a create made nothing is found out once, although the next has to wait.
func TestAbsence_IsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := crashed(t, finder, 3*time.Minute, asyncstate.WithMaxOperations(1))

		if err := w.api.Server().Create(t.Context(), bucket("other")); err != nil {
			t.Fatal(err)
		}

		reconciled(t, p, "b")
		pass(time.Hour)
		reconciled(t, p, "other")

		for range 3 {
			reconciled(t, p, "b")
			pass(time.Minute)
		}

		if n := len(w.said.Events("ExternalResourceAbsent")); n != 1 || reason(w.get("b"), asyncstate.TypeOperation) != asyncstate.ReasonQueued {
			t.Errorf("It was said %d times: %s", n, describe(w.get("b")))
		}

		// The next process need not wait for as long.
		p.kill()
		reconciled(t, w.start(), "b")

		if b := w.get("b"); reason(b, asyncstate.TypeOperation) != asyncstate.ReasonRunning {
			t.Error(describe(b))
		}
	})
}

// A guessingClient tries names out on the managed resource, and finds nothing.
type guessingClient struct{ findingClient }

func (guessingClient) Find(_ context.Context, mg resource.Managed, _ asyncstate.Attempt) (asyncstate.Finding, error) {
	meta.SetExternalName(mg, "guess")
	return asyncstate.Finding{}, nil
}

// What a Finder does to the managed resource is not stored.
func TestFinder_ChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, finder, bucket("b"))
		w.cloud.takes = 0
		w.cloud.lose = func() error { return errors.New("cannot tag the resource") }
		w.connect = func(p *process, _ resource.Managed) (upstream.ExternalClient, error) {
			inner, _ := p.client().(findingClient)
			return guessingClient{inner}, nil
		}

		w.start()
		pass(time.Minute)

		if b := w.get("b"); meta.GetExternalName(b) != "" || w.cloud.count(asyncstate.Create) != 1 {
			t.Errorf("%d creates; %s", w.cloud.count(asyncstate.Create), describe(b))
		}
	})
}
