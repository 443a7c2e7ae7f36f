package asyncstate_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/escape"
	"github.com/crossplane-graft/graft/pkg/managed/precreate"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A laterStep is an external system whose creates make a resource, id-1 first, and fail at a later step.
type laterStep struct {
	external []string // what exists
	listed   bool     // The Finder finds the first one.

	err    error // of the later step. Without one, it is waited for without end.
	named  bool  // Create has set the name before.
	handle bool  // Create has set a handle before.

	failObserve func() error
	creates     int
	finds       int
}

func (s *laterStep) Observe(_ context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	if s.failObserve != nil {
		if err := s.failObserve(); err != nil {
			return managed.ExternalObservation{}, err
		}
	}
	exists := slices.Contains(s.external, meta.GetExternalName(mg))
	return managed.ExternalObservation{ResourceExists: exists, ResourceUpToDate: exists && !s.handle}, nil
}

func (s *laterStep) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	s.creates++
	name := "id-" + string(rune('0'+s.creates))
	s.external = append(s.external, name)
	switch {
	case s.named:
		if err := asyncstate.SetExternalName(ctx, name); err != nil {
			return managed.ExternalCreation{}, err
		}
	case s.handle:
		if err := asyncstate.SetHandle(ctx, "op"); err != nil {
			return managed.ExternalCreation{}, err
		}
	case s.err != nil:
		return managed.ExternalCreation{}, s.err
	default:
		meta.SetExternalName(mg, name)
		return managed.ExternalCreation{}, nil
	}
	<-ctx.Done()
	return managed.ExternalCreation{}, ctx.Err()
}

func (s *laterStep) Update(ctx context.Context, _ resource.Managed) (managed.ExternalUpdate, error) {
	if err := asyncstate.SetHandle(ctx, "op"); err != nil {
		return managed.ExternalUpdate{}, err
	}
	<-ctx.Done()
	return managed.ExternalUpdate{}, ctx.Err()
}

func (s *laterStep) Delete(_ context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
	s.external = slices.DeleteFunc(s.external, func(n string) bool { return n == meta.GetExternalName(mg) })
	return managed.ExternalDelete{}, nil
}

func (s *laterStep) Disconnect(context.Context) error { return nil }

func (s *laterStep) Resume(context.Context, resource.Managed, asyncstate.Attempt) error { return nil }

// laterStepFinder has a Finder too.
type laterStepFinder struct{ *laterStep }

func (s laterStepFinder) Find(context.Context, resource.Managed, asyncstate.Attempt) (asyncstate.Finding, error) {
	s.finds++
	if s.listed && len(s.external) > 0 {
		return asyncstate.Found(s.external[0]), nil
	}
	return asyncstate.Absent(), nil
}

// environment with one bucket, whose first create has been made.
func (s *laterStep) environment(
	t *testing.T, c upstream.ExternalClient, o ...managed.ReconcilerOption,
) (*environment, *process) {
	t.Helper()
	e := newEnvironment(t, plainClient, bucket("b"))
	e.manualReconciles, e.reconcilerOptions = true, o
	e.options = []asyncstate.TrackerOption{asyncstate.WithTimeout(10 * time.Minute)}
	e.connect = func(*process, resource.Managed) (upstream.ExternalClient, error) { return c, nil }
	p := e.startProvider()
	mustReconcile(t, p, "b")
	advanceClock(time.Minute)
	expectEqual(t, "One create should be made.", "creates", 1, s.creates)
	return e, p
}

func refusedLater() error { return status.Error(codes.InvalidArgument, "the last step was refused") }

func rename(name string) func(b *v1alpha1.Bucket) {
	return func(b *v1alpha1.Bucket) {
		meta.SetExternalName(b, name)
		if name == "" {
			meta.RemoveAnnotations(b, meta.AnnotationKeyExternalName)
		}
	}
}

func keepExternal(b *v1alpha1.Bucket) {
	b.Spec.ManagementPolicies = xpv2.ManagementPolicies{
		xpv2.ManagementActionObserve, xpv2.ManagementActionCreate, xpv2.ManagementActionUpdate,
	}
}

// The external resource of a create should not be forgotten, however the next attempt ends.
func TestEarlierCreate(t *testing.T) {
	cases := map[string]struct {
		reason string
		create laterStep
		finds  bool

		precreate bool
		// then follows the create. It may replace the process.
		then func(t *testing.T, e *environment, p *process, s *laterStep) *process
		// stops says that it waits for a person without a Finder.
		stops bool
	}{
		"RenamedThenKilled": {
			reason: "The name that the create has set, and that another writer replaced, should be looked up.",
			create: laterStep{named: true, listed: true}, finds: true,
			then: func(_ *testing.T, e *environment, p *process, _ *laterStep) *process {
				e.edit("b", rename("in-git"))
				p.kill()
				return e.startProvider()
			},
		},
		"NameRemovedThenKilled": {
			reason: "The name that the create has set, and that another writer removed, should be looked up.",
			create: laterStep{named: true, listed: true}, finds: true,
			then: func(_ *testing.T, e *environment, p *process, _ *laterStep) *process {
				e.edit("b", rename(""))
				p.kill()
				return e.startProvider()
			},
		},
		"RenamedAfterDeadline": {
			reason: "The absence of another name should prove nothing about a create that ended without an outcome.",
			create: laterStep{named: true, listed: true}, stops: true,
			then: func(_ *testing.T, e *environment, p *process, _ *laterStep) *process {
				advanceClock(20 * time.Minute)
				e.edit("b", rename("in-git"))
				return p
			},
		},
		"AnnouncementAnswerLost": {
			reason: "An attempt that was announced and not made should not hide the one before.",
			create: laterStep{err: refusedLater()}, finds: true,
			then: func(_ *testing.T, _ *environment, p *process, s *laterStep) *process {
				p.loseAnswers(func(verb string, o client.Object) bool {
					return verb == testkit.Update && meta.ExternalCreateIncomplete(o)
				})
				reconcileUntilLookedUp(p, s)
				p.setFaults(nil, nil)
				return p
			},
		},
		"NotTried": {
			reason: "An attempt for which Create was not called should not hide the one before.",
			create: laterStep{err: refusedLater()}, finds: true, precreate: true,
			then: func(_ *testing.T, _ *environment, p *process, s *laterStep) *process {
				calls := 0
				s.failObserve = func() error {
					if calls++; calls == 2 {
						return status.Error(codes.Unavailable, "")
					}
					return nil
				}
				reconcileUntilLookedUp(p, s)
				return p
			},
		},
		"ShutdownBeforeCreate": {
			reason: "An attempt that a shutdown prevented should not hide the one before.",
			create: laterStep{err: refusedLater()}, finds: true,
			then: func(_ *testing.T, e *environment, p *process, _ *laterStep) *process {
				p.setFaults(func(verb string, o client.Object) error {
					if verb == testkit.Update && meta.ExternalCreateIncomplete(o) {
						p.cancel()
						synctest.Wait()
					}
					return nil
				}, nil)
				_, _ = p.reconcile("b")
				advanceClock(time.Minute)
				return e.startProvider()
			},
		},
	}
	for name, tc := range cases {
		for _, deleted := range []bool{false, true} {
			if tc.stops && deleted {
				continue
			}
			runInBubble(t, name+map[bool]string{true: "/Deleted"}[deleted], func(t *testing.T) {
				s := tc.create
				var c upstream.ExternalClient = &s
				if tc.finds {
					c = laterStepFinder{&s}
				}
				var o []managed.ReconcilerOption
				if tc.precreate {
					o = append(o, precreate.Refuse())
				}
				e, p := s.environment(t, c, o...)
				p = tc.then(t, e, p, &s)
				s.listed, s.err, s.named = true, nil, false
				if deleted {
					e.delete("b")
				}
				p.reconcileRepeatedly(40, time.Minute)
				expectEqual(t, tc.reason, "gone, external resources", []any{deleted, map[bool]int{false: 1}[deleted]},
					[]any{e.objectGone(), len(s.external)})
				if tc.stops {
					expectEqual(t, tc.reason, "reason", asyncstate.ReasonOutcomeUnknown,
						e.get("b").GetCondition(asyncstate.TypeOperation).Reason)
				}
			})
		}
	}
}

// reconcileUntilLookedUp reconciles until the Finder was called, right before the next create.
func reconcileUntilLookedUp(p *process, s *laterStep) {
	for finds := s.finds; s.finds == finds; advanceClock(time.Minute) {
		_, _ = p.reconcile("b")
		synctest.Wait()
	}
}

func TestEarlierCreate_ReservedByAnother(t *testing.T) {
	runInBubble(t, "Deleted", func(t *testing.T) {
		s := &laterStep{err: refusedLater()}
		e, p := s.environment(t, laterStepFinder{s}, reservation.With("default"))
		s.external = append(s.external, "other")
		e.add("a", rename("other"))
		mustReconcile(t, p, "a")
		e.edit("b", rename("other"))
		e.delete("b")
		p.reconcileRepeatedly(10, time.Minute)
		expectEqual(t, "The deletion should wait for a person, because the Finder can't be called.", "gone", false,
			e.objectGone())
	})
}

func TestEarlierCreate_FailedWithoutRecord(t *testing.T) {
	runInBubble(t, "Deleted", func(t *testing.T) {
		s := &laterStep{}
		e, p := s.environment(t, laterStepFinder{s})
		p.kill()
		s.external, s.listed = []string{"id-9"}, true
		e.edit("b", func(b *v1alpha1.Bucket) {
			rename("")(b)
			now := time.Now()
			meta.SetExternalCreatePending(b, now)
			meta.SetExternalCreateFailed(b, now.Add(time.Second))
			meta.RemoveAnnotations(b, asyncstate.AnnotationKeyOperation)
		})
		e.delete("b")
		e.startProvider().reconcileRepeatedly(10, time.Minute)
		expectEqual(t, "What a create of another process made should be looked up.", "gone, external resources",
			[]any{true, 0}, []any{e.objectGone(), len(s.external)})
	})
}

func TestEarlierCreate_AdoptedInPlaceOf(t *testing.T) {
	runInBubble(t, "Name", func(t *testing.T) {
		s := &laterStep{err: asyncstate.ErrOutcomeUnknown}
		e, p := s.environment(t, laterStepFinder{s})
		e.edit("b", rename("precious"))
		s.listed = true
		p.reconcileRepeatedly(5, time.Minute)
		expectContains(t, "An event should have the name that was replaced.", e.events.All(), "precious")
	})
}

// An operation with a handle that nothing resumes.
func TestHandle_NotResumed(t *testing.T) {
	forceOrphan := func(b *v1alpha1.Bucket) {
		meta.AddAnnotations(b, map[string]string{reconciler.AnnotationKeyForceOrphan: string(b.GetUID())})
	}
	cases := map[string]struct {
		reason string
		update bool
		change func(b *v1alpha1.Bucket)
		want   xpv2.ConditionReason // of Deleting; empty if the object is gone
	}{
		"Create":      {reason: "A person should be asked.", change: keepExternal, want: "CreateResultUnknown"},
		"Update":      {reason: "An update ends by the clock.", update: true, change: keepExternal},
		"ForceOrphan": {reason: "It is granted after the deadline.", change: forceOrphan, want: "ForceOrphaned"},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			s := &laterStep{handle: !tc.update}
			e, p := s.environment(t, s, escape.WithForceOrphan())
			if tc.update {
				p.reconcileRepeatedly(2, time.Minute)
				s.handle = true
				p.reconcileRepeatedly(2, time.Minute)
			}
			e.edit("b", tc.change)
			e.delete("b")
			p.kill()
			advanceClock(time.Hour)
			e.startProvider().reconcileRepeatedly(5, time.Minute)
			if tc.want == "" {
				expectEqual(t, tc.reason, "gone", true, e.objectGone())
				return
			}
			b := e.get("b")
			expectEqual(t, tc.reason, "reason, finalizer", []any{tc.want, tc.want == "CreateResultUnknown"}, []any{
				b.GetCondition("Deleting").Reason, slices.Contains(b.GetFinalizers(), managed.FinalizerName),
			})
		})
	}
}
