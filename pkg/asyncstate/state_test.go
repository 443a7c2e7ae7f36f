package asyncstate_test

import (
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

func TestStateOf(t *testing.T) {
	const (
		pending, failed = meta.AnnotationKeyExternalCreatePending, meta.AnnotationKeyExternalCreateFailed
		recorded        = asyncstate.AnnotationKeyOperation
	)
	started := time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	stamp := func(d time.Duration) string { return started.Add(d).Format(time.RFC3339) }
	record := func(typ, phase, more string) string {
		return `{"version":1,"uid":"u","type":"` + typ + `","phase":"` + phase + `","attempt":2,"token":"t",` +
			`"holder":"h","pending":"` + stamp(0) + `","started":"` + stamp(0) + `","deadline":"` + stamp(time.Hour) +
			`"` + more + `}`
	}
	ended := `,"ended":"` + stamp(time.Minute) + `"`
	operation := func(typ asyncstate.Type, phase asyncstate.Phase, handle string) *asyncstate.RecordedOperation {
		return &asyncstate.RecordedOperation{
			Attempt:  asyncstate.Attempt{Type: typ, Number: 2, Token: "t", Handle: handle, Started: started},
			Phase:    phase,
			Deadline: started.Add(time.Hour),
		}
	}
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		now         time.Duration // since the start
		want        asyncstate.State
		unusable    bool
	}{
		"None": {reason: "An object without annotations should have no operation."},
		"Announced": {
			reason:      "Only the announcement should tell of a create without a record.",
			annotations: map[string]string{pending: stamp(0)},
			want: asyncstate.State{
				Run: asyncstate.Run{
					Type: asyncstate.Create, Until: started.Add(5 * time.Minute),
					Reason: "it was announced, and nothing has reported its end",
				},
				CreateStarted: started, CreateUnknown: true,
			},
		},
		"Running": {
			reason:      "A recorded create should be able to run for a minute after its deadline, with an unknown outcome.",
			annotations: map[string]string{pending: stamp(0), recorded: record("create", "running", "")},
			now:         time.Hour,
			want: asyncstate.State{
				Run: asyncstate.Run{
					Type: asyncstate.Create, Until: started.Add(61 * time.Minute), Reason: "it is recorded as running",
				},
				Operation:     operation(asyncstate.Create, asyncstate.PhaseRunning, ""),
				CreateStarted: started, CreateUnknown: true,
			},
		},
		"Resumable": {
			reason: "No time should end a create that its provider resumes.",
			annotations: map[string]string{
				pending: stamp(0), recorded: record("create", "unknown", ended+`,"handle":"op-1"`),
			},
			now: 2 * time.Hour,
			want: asyncstate.State{
				Run: asyncstate.Run{
					Type: asyncstate.Create, Until: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), Unresolved: true,
					Reason: "it was interrupted, and the provider resumes it by its handle",
				},
				Operation:     operation(asyncstate.Create, asyncstate.PhaseUnknown, "op-1"),
				CreateStarted: started, CreateUnknown: true,
			},
		},
		"DeleteFailed": {
			reason:      "A delete that failed should not run, and says nothing about the create.",
			annotations: map[string]string{recorded: record("delete", "failed", ended)},
			want:        asyncstate.State{Operation: operation(asyncstate.Delete, asyncstate.PhaseFailed, "")},
		},
		"Refused": {
			reason: "A create that failed should be refused, too, if the external resource was another's.",
			annotations: map[string]string{
				pending: stamp(0), failed: stamp(time.Minute), creation.AnnotationKeyRefused: "u",
				recorded: record("create", "failed", ended),
			},
			want: asyncstate.State{
				Operation:     operation(asyncstate.Create, asyncstate.PhaseFailed, ""),
				CreateStarted: started, CreateFailed: true, CreateRefused: true,
			},
		},
		"Unusable": {
			reason:      "The outcome of the create should be unknown if the record cannot be used.",
			annotations: map[string]string{asyncstate.AnnotationKeyOperation: "{"},
			want:        asyncstate.State{CreateUnknown: true},
			unusable:    true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetUID("u")
			o.SetAnnotations(tc.annotations)
			got := asyncstate.StateOf(o, started.Add(tc.now))
			if err := got.RecordError; (err != nil) != tc.unusable {
				t.Errorf("\n%s\nStateOf(...): want an unusable record: %t, got %v", tc.reason, tc.unusable, err)
			}
			got.RecordError = nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nStateOf(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A condition that asks a person should name the time before which kubectl graft refuses to settle the create.
func TestStateOf_Condition(t *testing.T) {
	runInBubble(t, "Killed", func(t *testing.T) {
		e := newEnvironment(t, plainClient, bucket("b"))
		e.manualReconciles = true
		p := e.crashAndRestart(3 * time.Minute)
		mustReconcile(t, p, "b")
		b := e.get("b")
		run := asyncstate.StateOf(b, time.Now()).Run
		until := " after " + run.Until.UTC().Format(time.RFC3339) + ", when the create has certainly ended"
		expectEqual(t, "The create may run after its process was killed.", "runs", true, run.Until.After(time.Now()))
		expectContains(t, "The condition should name the time.", condition(b, asyncstate.TypeOperation), until)

		message := condition(b, asyncstate.TypeOperation)
		p.reconcileRepeatedly(3, time.Hour)
		b = e.get("b")
		expectEqual(t, "The time has passed.", "runs", asyncstate.Type(""), asyncstate.StateOf(b, time.Now()).Run.Type)
		expectEqual(
			t, "The condition should not change as time passes.", "condition", message,
			condition(b, asyncstate.TypeOperation),
		)
		expectEqual(t, "It should be reported once.", "events", 1, len(e.events.Events("CreateResultUnknown")))
	})
}
