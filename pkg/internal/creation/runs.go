package creation

import (
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

const (
	// EndGrace is how long after its deadline a recorded operation may still run. Then its own process
	// abandons it.
	EndGrace = time.Minute

	// longestCreate is how long a create without a record may run: its announcement has no deadline. Upjet's
	// providers end a reconcile after three minutes, crossplane-runtime after one. The rest is for the last
	// request, and for clocks that differ.
	longestCreate = 5 * time.Minute
)

// A Run is an operation that may still run on the external resource of an object. The zero Run means that
// none may.
type Run struct {
	Type OperationType

	// Until is the time at which the operation has certainly ended, by the clock of the process that began
	// it. It is the time that [Run.Unresolved] describes if no clock ends the operation.
	Until time.Time

	// Reason is a clause such as "it is recorded as running".
	Reason string
}

// Reasons why an operation may still run.
const (
	runRecorded  = "it is recorded as running"
	runResumable = "it was interrupted, and the provider resumes it by its handle"
	runOpen      = "an earlier request of it may still be carried out"
	runAnnounced = "it was announced, and nothing has reported its end"
)

// RunsUntil returns the operation that some process may still run on the external resource of o, from o alone.
func RunsUntil(o client.Object, now time.Time) Run {
	s, err := Of(o)
	if err != nil {
		s = fromAnnotations(o) // The record says nothing that can be used.
	}
	run := Run{Type: Create, Until: s.OpenUntil, Reason: runOpen}

	switch r := s.Record; {
	case r != nil:
		run.Type = r.Type
		if r.OpenUntil != nil {
			run = run.Or(Run{Type: r.Type, Until: r.OpenUntil.Time, Reason: runOpen})
		}
		run = run.Or(r.runs(now))
	case s.Phase == Announced:
		run = run.Or(RunOfAnnounced(s, longestCreate))
	}
	return run.At(now)
}

// RunOfAnnounced returns the run of a create without a record that takes no longer than longest.
func RunOfAnnounced(s State, longest time.Duration) Run {
	return Run{Type: Create, Until: Later(s.Since, longest), Reason: runAnnounced}
}

// runs returns the run of the recorded operation itself.
func (r *Record) runs(now time.Time) Run {
	run := Run{Type: r.Type, Until: Later(r.Deadline.Time, EndGrace), Reason: runRecorded}

	switch over := !now.Before(run.Until); {
	case r.Handle != "" && (r.Phase == RecordUnknown || r.Phase == RecordRunning && over):
		// Once it is over, an update or delete leaves nothing that is not observed.
		if run.Reason = runResumable; over && r.Type == Create {
			run.Until = endOfTime()
		}
	case r.Phase != RecordRunning:
		return Run{}
	}
	return run
}

// At returns the run, or the zero Run if it has ended by now.
func (r Run) At(now time.Time) Run {
	if !now.Before(r.Until) {
		return Run{}
	}
	return r
}

// Or returns the run that ends later.
func (r Run) Or(other Run) Run {
	if other.Until.After(r.Until) {
		return other
	}
	return r
}

// Unresolved reports whether only the next process or a person ends the operation: its time has passed, and
// it has a handle by which it is resumed.
func (r Run) Unresolved() bool { return r.Until.Equal(endOfTime()) }

// SettleAfter returns words for the time after which a person may settle the create of o that began at since, or
// nothing if at any time. They are the same whenever they are asked for, so that they cause no writes.
func SettleAfter(o client.Object, since time.Time) string {
	run := RunsUntil(o, since)
	if run.Until.IsZero() {
		return ""
	}
	return " after " + seam.Stamp(run.Until) + ", when the create has certainly ended"
}

// WithLastError returns a message about the create that began at since, with the error that it ended with. If this
// process does not know the error, the message that is stored may have it.
func WithLastError(message, err, stored string, since time.Time) string {
	const intro, longest = " Its last error: ", 1 << 10
	if _, known, ok := strings.Cut(stored, intro); err == "" && ok && strings.Contains(stored, seam.Stamp(since)) {
		err = known
	}
	if err == "" {
		return message
	}
	return message + intro + Clean(err, longest)
}

// String returns a clause about the run for messages.
func (r Run) String() string {
	end := seam.Stamp(r.Until)
	if r.Unresolved() {
		end = "its provider has resumed it, or a person has settled it"
	}
	return fmt.Sprintf("an operation on its external resource, a %s, may run until %s: %s", r.Type, end, r.Reason)
}
