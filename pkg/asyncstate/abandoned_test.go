package asyncstate_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// A create that ignores its cancelled context should be abandoned, and its late result should only add.
func TestAbandoned_IgnoresContext(t *testing.T) {
	cases := map[string]struct {
		reason string
		edit   string // The name that another writer sets meanwhile.
		want   string
	}{
		"AddsName":  {reason: "The name should be stored if the object has none.", want: "id-0001"},
		"KeepsName": {reason: "The name of another writer should be kept.", edit: "id-9", want: "id-9"},
	}
	for name, tc := range cases {
		runInBubble(t, name, func(t *testing.T) {
			hangs := make(chan struct{})
			e := newEnvironmentWithClient(t, false, func(_ context.Context, mg resource.Managed) error {
				<-hangs
				meta.SetExternalName(mg, "id-0001")
				return nil
			})
			e.options = append(e.options, asyncstate.WithMaxOperations(1))
			e.add("next")
			p := e.startProvider()
			mustReconcile(t, p, "b")
			advanceClock(asyncstate.DefaultTimeout + creation.EndGrace - time.Second)
			expectRunning := func(want int) {
				t.Helper()
				series := fmt.Sprintf("\ngraft_async_operations_running{type=\"create\"} %d\n", want)
				expectContains(t, "metrics", exposed(t, p.metrics), series)
			}
			expectRunning(1)
			mustReconcile(t, p, "next")
			expectEqual(
				t, "The permit is in use.", "next", asyncstate.ReasonQueued,
				reason(e.get("next"), asyncstate.TypeOperation),
			)
			advanceClock(time.Minute)
			expectRunning(0)
			mustReconcile(t, p, "next")
			expectRunning(1)
			expectEqual(
				t, "The permit should be free.", "next", asyncstate.ReasonRunning,
				reason(e.get("next"), asyncstate.TypeOperation),
			)
			r, err := creation.RecordOf(e.get("b"))
			if err != nil || r == nil {
				t.Fatalf("want a record, got %v, %v", r, err)
			}
			_, runs := p.tracker.Lookup("uid-1")
			expectEqual(t, "Nothing should wait for the create.", "phase, abandoned, runs", []any{
				creation.RecordUnknown, true, false,
			}, []any{r.Phase, r.Abandoned, runs})
			if tc.edit != "" {
				e.edit("b", func(b *v1alpha1.Bucket) { meta.SetExternalName(b, tc.edit) })
			}
			close(hangs)
			synctest.Wait()
			advanceClock(time.Minute)
			expectEqual(t, tc.reason, "name", tc.want, meta.GetExternalName(e.get("b")))
		})
	}
}

// After a shutdown no condition should say that an operation runs.
func TestShutdown_Condition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnvironmentWithClient(t, false, func(ctx context.Context, _ resource.Managed) error {
			if err := asyncstate.SetHandle(ctx, "op-1"); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		})
		p := e.startProvider()
		mustReconcile(t, p, "b")
		synctest.Wait()
		p.stop()
		b := e.get("b")
		c := b.GetCondition(asyncstate.TypeOperation)
		expectEqual(t, "The operation was interrupted.\n"+describe(b), "status, reason", []any{
			corev1.ConditionFalse, asyncstate.ReasonInterrupted,
		}, []any{c.Status, c.Reason})
		run := creation.RunsUntil(b, time.Now())
		expectEqual(t, "The next process resumes it.", "runs", false, run.Until.IsZero())
	})
}

// A create whose deadline passes before the client is called has created nothing.
func TestNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		creates := 0
		e := newEnvironmentWithClient(t, false, func(context.Context, resource.Managed) error {
			creates++
			return nil
		})
		e.options = append(e.options, asyncstate.WithTimeout(time.Second))
		e.api.Before = func(_ context.Context, r testkit.Request) error {
			if r.Verb != testkit.Get && r.Verb != testkit.LiveGet {
				time.Sleep(2 * time.Second) // Writes are slow.
			}
			return nil
		}
		p := e.startProvider()
		mustReconcile(t, p, "b")
		synctest.Wait()
		advanceClock(10 * time.Second)
		r, err := creation.RecordOf(e.get("b"))
		if err != nil || r == nil {
			t.Fatalf("want a record, got %v, %v", r, err)
		}
		expectEqual(t, "The outcome of a create that was not sent is known.", "phase, creates", []any{
			creation.RecordFailed, 0,
		}, []any{r.Phase, creates})
	})
}
