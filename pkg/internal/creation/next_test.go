package creation

import (
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// The times of the tests: a create began at began, with an hourPassed to go.
var (
	began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later = began.Add(2 * time.Hour)
)

func recorded(change func(r *Record)) *Record {
	r := &Record{
		Type:     Create,
		Phase:    RecordRunning,
		Token:    "t",
		Started:  metav1.NewTime(began),
		Deadline: metav1.NewTime(began.Add(time.Hour)),
	}
	if change != nil {
		change(r)
	}
	return r
}

func TestNext(t *testing.T) {
	limits := Limits{Announced: 2 * time.Minute, Grace: 30 * time.Second}
	finder := Can{Find: true, Create: true}
	tokens, names := Can{Tokens: true, Create: true}, Can{Names: true, Create: true}
	with := func(c Can, change func(c *Can)) Can {
		change(&c)
		return c
	}
	noCreate := func(c *Can) { c.Create = false }
	announced := State{Phase: Announced, Since: began}
	running := State{Phase: Running, Since: began, Record: recorded(nil)}
	named := State{Phase: Unknown, Since: began, Named: true, Record: recorded(nil)}
	repeated := State{Phase: Running, Since: began, Record: recorded(func(r *Record) { r.Repeated = true })}
	open := recorded(func(r *Record) {
		r.Phase, r.OpenUntil = RecordFailed, &metav1.Time{Time: began.Add(10 * time.Minute)}
	})
	exists := State{Phase: Created, Ended: began, Record: recorded(func(r *Record) {
		r.Phase, r.Exists = RecordFailed, true
	})}
	handle := State{Phase: Running, Record: recorded(func(r *Record) { r.Handle = "h" })}
	noResult := State{Phase: Unknown, Since: began, Record: recorded(func(r *Record) {
		r.Handle, r.Phase = "h", RecordUnknown
	})}
	resumes := func(c *Can) { c.Resume = true }
	waiting := func(r Reason, delay time.Duration, until time.Time) Step {
		return Step{Action: Wait, Reason: r, Delay: delay, Until: until}
	}
	hourPassed, gracePassed := began.Add(time.Hour+limits.Grace), began.Add(limits.Grace)

	cases := map[string]struct {
		reason          string
		state           State
		can             Can
		lookup          Answer
		observed        Answer
		deleting        bool
		deleteSucceeded bool
		now             time.Time
		want            Step
	}{
		"None": {
			reason: "A create that was not announced should need no step.",
			can:    finder,
			want:   Step{Action: Proceed},
		},
		"Refused": {
			reason: "A create that Graft refused should need no step.",
			state:  State{Phase: Refused},
			can:    finder,
			want:   Step{Action: Proceed},
		},
		"Exists": {
			reason: "The external system should have the grace period to show the external resource of the earlier create.",
			state:  exists,
			can:    finder,
			want:   Step{Action: Proceed},
		},
		"ExistsLater": {
			reason: "After the grace period, the Finder should be called: the external resource may be from another create.",
			state:  exists,
			can:    finder,
			now:    gracePassed,
			want:   Step{Action: LookUp},
		},
		"ExistsDeleted": {
			reason:   "A Finder should be asked before a deletion.",
			state:    exists,
			can:      finder,
			deleting: true,
			want:     Step{Action: LookUp},
		},
		"ExistsNotFound": {
			reason: "A create should be made if the Finder finds nothing, either.",
			state:  exists,
			can:    finder, lookup: Absent,
			now:  gracePassed,
			want: Step{Action: Proceed},
		},
		"ExistsWithHandle": {
			reason: "An operation that has ended should not be resumed: it would give the same error again.",
			state: State{Phase: Created, Ended: began, Record: recorded(func(r *Record) {
				r.Phase, r.Exists, r.Handle = RecordFailed, true, "h"
			})},
			can:  with(finder, resumes),
			now:  gracePassed,
			want: Step{Action: LookUp},
		},
		"ExistsWithoutFinder": {
			reason: "Without a Finder, the create should be repeated as upstream does.",
			state:  exists,
			can:    names,
			now:    gracePassed,
			want:   Step{Action: Proceed},
		},
		"CreatedAbsent": {
			reason:   "The external system should have the grace period to show a new external resource.",
			state:    State{Phase: Created, Ended: began},
			observed: Absent, want: waiting(MayBeInProgress, time.Second, gracePassed),
		},
		"CreatedAbsentLater": {
			reason:   "After the grace period absence should be believed.",
			state:    State{Phase: Created, Ended: began},
			observed: Absent,
			now:      gracePassed,
			want:     Step{Action: Proceed},
		},
		"CreatedAbsentOtherClock": {
			reason:   "The grace period should not be shorter because another process's clock is behind.",
			state:    State{Phase: Created, Ended: began.Add(-20 * time.Second)},
			observed: Absent, want: waiting(MayBeInProgress, time.Second, gracePassed),
		},
		"CreatedAbsentDeleted": {
			reason:          "Absence should be believed at once after a delete that succeeded.",
			state:           State{Phase: Created, Ended: began},
			observed:        Absent,
			deleteSucceeded: true,
			want:            Step{Action: Proceed},
		},
		"CreatedDeletedOtherOpen": {
			reason:   "A delete that succeeded should not prove absence while an earlier create may be in progress.",
			state:    State{Phase: Created, Ended: began, OpenUntil: began.Add(time.Minute)},
			observed: Absent, deleting: true, deleteSucceeded: true,
			want: waiting(OtherMayBeInProgress, time.Second, began.Add(time.Minute+limits.Grace)),
		},
		"CreatedAbsentOtherOpen": {
			reason:   "An earlier create that may be in progress should not lengthen the grace period.",
			state:    State{Phase: Created, Ended: began, OpenUntil: began.Add(time.Hour)},
			observed: Absent, want: waiting(MayBeInProgress, time.Second, gracePassed),
		},
		"CreatedHiddenOtherOpen": {
			reason:   "An earlier create that may be in progress should not keep an external resource from being created.",
			state:    State{Phase: Created, Ended: began, OpenUntil: began.Add(time.Hour)},
			observed: Absent,
			now:      gracePassed,
			want:     Step{Action: Proceed},
		},
		"FailedDeletedOtherOpen": {
			reason:   "A repeated create that failed should not prove absence while the earlier one may be in progress.",
			state:    State{Phase: Failed, Ended: began, OpenUntil: began.Add(time.Minute)},
			can:      names,
			observed: Absent, deleting: true,
			want: waiting(OtherMayBeInProgress, time.Second, began.Add(time.Minute+limits.Grace)),
		},
		"CreatedToDelete": {
			reason:   "Without unique names, a delete should wait while another create may create an external resource again.",
			state:    State{Phase: Created, Ended: began, OpenUntil: began.Add(time.Minute)},
			observed: Exists, deleting: true,
			want: waiting(OtherMayBeInProgress, time.Second, began.Add(time.Minute+limits.Grace)),
		},
		"CreatedToDeleteByName": {
			reason:   "With unique names, an external resource should be deleted at once, and again if it appears again.",
			state:    State{Phase: Created, Ended: began, OpenUntil: began.Add(time.Minute)},
			can:      names,
			observed: Exists, deleting: true,
			want: Step{Action: Proceed},
		},
		"OpenByAnotherClock": {
			reason:   "A clock that is ahead should not make a deletion wait longer.",
			state:    State{Phase: Created, Ended: began, OpenUntil: later},
			observed: Absent, deleting: true, deleteSucceeded: true,
			want: waiting(OtherMayBeInProgress, time.Second, began.Add(time.Minute+limits.Grace)),
		},
		"OpenBefore": {
			reason:   "A create that can no longer be in progress should not delay a deletion.",
			state:    State{Phase: Created, Ended: began, OpenUntil: began.Add(-limits.Grace)},
			observed: Absent, deleting: true, deleteSucceeded: true,
			want: Step{Action: Proceed},
		},
		"AnnouncedDeletedBefore": {
			reason:   "A delete may have deleted the external resource of an earlier create.",
			state:    State{Phase: Announced, Since: began, Confirmed: true},
			can:      names,
			observed: Absent, deleting: true, deleteSucceeded: true,
			want: waiting(MayBeInProgress, time.Second, began.Add(limits.Announced+limits.Grace)),
		},
		"AnnouncedDeleted": {
			reason:   "A delete that succeeded should prove absence if the create was made once.",
			state:    announced,
			can:      names,
			observed: Absent, deleting: true, deleteSucceeded: true,
			want: Step{Action: BelieveAbsent},
		},
		"AnnouncedDeletedOtherOpen": {
			reason:   "A delete that succeeded should not prove absence while either create may be in progress.",
			state:    State{Phase: Announced, Since: began, OpenUntil: began.Add(time.Minute)},
			can:      names,
			observed: Absent, deleting: true, deleteSucceeded: true,
			want: waiting(OtherMayBeInProgress, time.Second, began.Add(limits.Announced+limits.Grace)),
		},

		"Failed": {
			reason: "A failed create should be repeated as upstream does.",
			state:  State{Phase: Failed},
			can:    tokens,
			want:   Step{Action: Proceed},
		},
		"FailedFound": {
			reason: "The external resource of a failed create should be adopted.",
			state:  State{Phase: Failed},
			can:    finder,
			lookup: Exists,
			want:   Step{Action: Adopt},
		},
		"FailedAbsent": {
			reason:   "A failed create without a name should need no wait.",
			state:    State{Phase: Failed},
			can:      finder,
			deleting: true,
			lookup:   Absent,
			want:     Step{Action: Proceed},
		},
		"FailedCannotTell": {
			reason: "A failed create should not be repeated before the Finder can tell.",
			state:  State{Phase: Failed},
			can:    finder,
			lookup: Inconclusive,
			want:   waiting(CannotTell, time.Second, time.Time{}),
		},
		"FailedNamed": {
			reason: "A failed create that stored a name should be observed by that name.",
			state:  State{Phase: Failed, Named: true},
			can:    finder,
			want:   Step{Action: Observe},
		},
		"FailedOpen": {
			reason: "Absence should not be believed while the same attempt of another process may be in progress.",
			state:  State{Phase: Failed, Record: open},
			can:    with(finder, func(c *Can) { c.Tokens = true }),
			lookup: Absent, want: waiting(MayBeInProgress, time.Second, began.Add(10*time.Minute+limits.Grace)),
		},
		"FailedTokenAbsent": {
			reason: "A new attempt should follow a failed one, not a repetition.",
			state:  State{Phase: Failed, Record: recorded(nil)},
			can:    with(finder, func(c *Can) { c.Tokens = true }),
			lookup: Absent,
			want:   Step{Action: Proceed},
		},

		"ResumeNoHandle": {
			reason: "An operation without a handle cannot be resumed.",
			state:  running,
			can:    with(finder, func(c *Can) { c.Resume = true }),
			want:   Step{Action: LookUp},
		},
		"ResumeNoRecord": {
			reason: "A create without a record has no handle.",
			state:  announced,
			can:    with(finder, func(c *Can) { c.Resume = true }),
			want:   Step{Action: LookUp},
		},
		"ResumeNoResumer": {
			reason: "A provider without a Resumer should use its Finder.",
			state:  handle,
			can:    finder,
			want:   Step{Action: LookUp},
		},

		"ResumeAgain": {
			reason: "An operation that may still take should be resumed again.",
			state:  noResult,
			can:    with(finder, resumes),
			now:    began.Add(time.Hour - time.Second),
			want:   Step{Action: Resume},
		},
		"ResumeClockAhead": {
			reason: "A clock that is a little ahead should not make an operation overdue.",
			state:  noResult,
			can:    with(finder, resumes),
			now:    began.Add(-time.Minute),
			want:   Step{Action: Resume},
		},
		"ResumeLate": {
			reason: "An operation that was interrupted should be resumed first, however long ago it began.",
			state:  handle,
			can:    with(finder, resumes),
			now:    later,
			want:   Step{Action: Resume},
		},
		"Overdue": {
			reason: "The Finder should be asked when the operation has had its time without a result.",
			state:  noResult,
			can:    with(finder, resumes),
			now:    began.Add(time.Hour),
			want:   Step{Action: LookUp},
		},
		"OverdueClockAhead": {
			reason: "A clock that is far ahead should not keep the Finder from being asked.",
			state:  noResult,
			can:    with(finder, resumes),
			now:    began.Add(-time.Hour),
			want:   Step{Action: LookUp},
		},
		"OverdueFound": {
			reason:   "An external resource that is found should be adopted, to delete it, too.",
			state:    noResult,
			can:      with(finder, resumes),
			lookup:   Exists,
			deleting: true,
			now:      later,
			want:     Step{Action: Adopt},
		},
		"OverdueAbsent": {
			reason:   "Absence should not be believed while the operation gives no result.",
			state:    noResult,
			can:      with(finder, resumes),
			lookup:   Absent,
			deleting: true,
			now:      later,
			want:     Step{Action: Resume, Reason: NoResult},
		},
		"OverdueFails": {
			reason: "An operation should be resumed although the look-up fails.",
			state:  noResult,
			can:    with(finder, resumes),
			lookup: Errored,
			now:    later,
			want:   Step{Action: Resume, Reason: NoResult},
		},
		"OverdueName": {
			reason: "The name should be observed when the operation has had its time without a result.",
			state:  noResult,
			can:    with(names, resumes),
			now:    later,
			want:   Step{Action: Observe},
		},
		"OverdueObserved": {
			reason:   "An external resource that is observed should confirm the create.",
			state:    noResult,
			can:      with(names, resumes),
			observed: Exists,
			now:      later,
			want:     Step{Action: Confirm},
		},
		"OverdueNotObserved": {
			reason:   "A create should not be repeated while its operation gives no result.",
			state:    noResult,
			can:      with(names, resumes),
			observed: Absent,
			now:      later,
			want:     Step{Action: Resume, Reason: NoResult},
		},
		"OverdueToken": {
			reason: "A create should not be repeated with its token either: the external system may have forgotten it.",
			state:  noResult,
			can:    with(tokens, resumes),
			now:    later,
			want:   Step{Action: Resume, Reason: NoResult},
		},

		"LookUpFailed": {
			reason: "A look-up that failed should be made again.",
			state:  announced,
			can:    finder,
			lookup: Errored,
			want:   waiting(LookUpFailed, time.Second, began.Add(150*time.Second)),
		},
		"LookUpFailsLong": {
			reason: "A look-up that keeps failing should be made every five minutes.",
			state:  running,
			can:    finder,
			lookup: Errored,
			now:    later,
			want:   waiting(LookUpFailed, 5*time.Minute, hourPassed),
		},
		"CannotTell": {
			reason: "A look-up that cannot tell should be made again, also when the create has ended.",
			state:  running,
			can:    finder,
			lookup: Inconclusive,
			now:    later,
			want:   waiting(CannotTell, 5*time.Minute, hourPassed),
		},
		"Found": {
			reason: "A found external resource should be adopted, also while the create may be in progress.",
			state:  running,
			can:    finder,
			lookup: Exists,
			want:   Step{Action: Adopt},
		},
		"FoundRepeated": {
			reason: "An external resource that another process may create again should not be deleted yet.",
			state:  repeated,
			can:    finder, deleting: true, lookup: Exists,
			want: waiting(OtherMayBeInProgress, time.Second, hourPassed),
		},
		"FoundRepeatedLater": {
			reason:   "An external resource that no process creates again should be deleted.",
			state:    repeated,
			can:      finder,
			deleting: true,
			lookup:   Exists,
			now:      hourPassed,
			want:     Step{Action: Adopt},
		},
		"FoundDeleting": {
			reason:   "The external resource of a single attempt should be deleted at once.",
			state:    running,
			can:      finder,
			deleting: true,
			lookup:   Exists,
			want:     Step{Action: Adopt},
		},
		"AbsentAnnounced": {
			reason: "A create without a record may be in progress for as long as a reconcile takes.",
			state:  announced,
			can:    finder,
			lookup: Absent,
			now:    began.Add(2 * time.Minute),
			want:   waiting(MayBeInProgress, 30*time.Second, began.Add(150*time.Second)),
		},
		"AbsentAnnouncedLater": {
			reason: "After that, and the grace period, absence should be believed.",
			state:  announced,
			can:    finder,
			lookup: Absent,
			now:    began.Add(150 * time.Second),
			want:   Step{Action: BelieveAbsent},
		},
		"AbsentClockAhead": {
			reason: "The clock of another machine that is ahead should not make the wait longer.",
			state:  State{Phase: Announced, Since: later},
			can:    finder, lookup: Absent, now: began.Add(150 * time.Second), want: Step{Action: BelieveAbsent},
		},
		"AbsentAbandoned": {
			reason: "A create that nothing waits for may be in progress for as long as it was allowed.",
			state:  State{Phase: Unknown, Record: recorded(func(r *Record) { r.Abandoned = true })},
			can:    finder, lookup: Absent, want: waiting(MayBeInProgress, time.Second, hourPassed),
		},
		"AbsentOpen": {
			reason: "The same attempt of another process may be in progress for longer.",
			state: State{
				Phase:  Unknown,
				Record: recorded(func(r *Record) { r.OpenUntil = &metav1.Time{Time: began.Add(3 * time.Hour)} }),
			},
			can:    finder,
			lookup: Absent, want: waiting(MayBeInProgress, time.Second, began.Add(3*time.Hour+30*time.Second)),
		},
		"AbsentToken": {
			reason: "A create with a token should be observed, and then repeated, without a wait.",
			state:  running,
			can:    with(finder, func(c *Can) { c.Tokens = true }),
			lookup: Absent,
			want:   Step{Action: Observe},
		},
		"AbsentTokenDeleting": {
			reason:   "A create should not be repeated for an object that is being deleted if the Finder tells.",
			state:    running,
			can:      Can{Find: true, Tokens: true, Create: true},
			deleting: true,
			lookup:   Absent,
			want:     waiting(MayBeInProgress, time.Second, hourPassed),
		},
		"AbsentTokenPolicies": {
			reason: "A create should not be repeated against the management policies.",
			state:  running,
			can:    Can{Find: true, Tokens: true},
			lookup: Absent,
			want:   waiting(MayBeInProgress, time.Second, hourPassed),
		},

		"NoLookUp": {
			reason: "A create that the provider cannot look up should stop for a person.",
			state:  running,
			can:    Can{Create: true},
			want:   Step{Action: Stop, Reason: NoLookUp},
		},
		"NoToken": {
			reason: "The token of a create without a record is not known.",
			state:  announced,
			can:    tokens,
			want:   Step{Action: Stop, Reason: NoLookUp},
		},
		"NamedFound": {
			reason: "The name that the create has stored should count, not the Finder.",
			state:  named,
			can:    finder,
			lookup: Exists,
			want:   Step{Action: Observe},
		},
		"NamedObserved": {
			reason:   "A create whose external resource is observed has succeeded.",
			state:    named,
			can:      Can{Create: true},
			observed: Exists,
			want:     Step{Action: Confirm},
		},
		"NamedAbsent": {
			reason:   "The external system should have the grace period to show an external resource of that name.",
			state:    named,
			can:      Can{Create: true},
			observed: Absent,
			want:     waiting(MayBeInProgress, time.Second, gracePassed),
		},
		"NamedAbsentEnd": {
			reason:   "After the grace period absence under that name should be believed.",
			state:    named,
			can:      Can{Create: true},
			observed: Absent,
			now:      gracePassed,
			want:     Step{Action: BelieveAbsent},
		},
		"NamedToken": {
			reason:   "A create that stored a name should be repeated with its token.",
			state:    named,
			can:      tokens,
			observed: Absent,
			want:     Step{Action: Repeat},
		},

		"TokenDeleting": {
			reason:   "A repetition should find the external resource to delete.",
			state:    running,
			can:      tokens,
			deleting: true,
			observed: Absent,
			want:     Step{Action: Repeat},
		},
		"TokenNotAllowed": {
			reason:   "A repetition that the policies don't allow should stop for a person.",
			state:    running,
			can:      with(tokens, noCreate),
			observed: Absent,
			want:     Step{Action: Stop, Reason: NotAllowed},
		},
		"TokenRepeatedExists": {
			reason:   "An external resource that another process may create again should not be deleted yet.",
			state:    repeated,
			can:      tokens,
			deleting: true,
			observed: Exists,
			want:     waiting(OtherMayBeInProgress, time.Second, hourPassed),
		},
		"NameRepeat": {
			reason:   "A create with a unique name should be repeated.",
			state:    running,
			can:      names,
			observed: Absent,
			want:     Step{Action: Repeat},
		},
		"NameNotAllowed": {
			reason:   "A name should tell that nothing was created without a repetition.",
			state:    running,
			can:      with(names, noCreate),
			observed: Absent,
			now:      hourPassed,
			want:     Step{Action: BelieveAbsent},
		},
		"RepeatedAbsentDeleting": {
			reason:   "An absent external resource should not be waited for as if it were to be deleted.",
			state:    repeated,
			can:      names,
			deleting: true,
			observed: Absent,
			want:     waiting(MayBeInProgress, time.Second, hourPassed),
		},
		"SeenInTheFuture": {
			reason: "A clock that was set back should not make this process ask every second.",
			state:  running,
			can:    finder,
			lookup: Absent,
			now:    began.Add(-time.Hour),
			want:   waiting(MayBeInProgress, time.Minute, hourPassed),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := tc.now
			if now.IsZero() {
				now = began
			}
			got := Next(Question{
				State:           tc.state,
				Can:             tc.can,
				Limits:          limits,
				Lookup:          tc.lookup,
				Observed:        tc.observed,
				Deleting:        tc.deleting,
				DeleteSucceeded: tc.deleteSucceeded,
				Now:             now,
				FirstSeen:       began,
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nNext(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAnswerOf(t *testing.T) {
	errFinder := errors.New("no answer")
	cases := map[string]struct {
		reason   string
		known    bool
		name     string
		err      error
		want     Answer
		wantName string
		wantErr  bool
	}{
		"Found":      {reason: "A name should be found.", known: true, name: "n", want: Exists, wantName: "n"},
		"Absent":     {reason: "An empty name should mean absence.", known: true, want: Absent},
		"CannotTell": {reason: "A name should not count if the Finder cannot tell.", name: "n\n", want: Inconclusive},
		"Error": {
			reason: "A name should not count beside an error.",
			known:  true, name: "n", err: errFinder, want: Errored, wantErr: true,
		},
		"Unstorable": {
			reason: "A name that cannot be stored should be an error.",
			known:  true, name: "n\n", want: Errored, wantErr: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, gotName, err := AnswerOf(tc.known, tc.name, tc.err)
			if got != tc.want || gotName != tc.wantName || (err != nil) != tc.wantErr {
				t.Errorf("\n%s\nAnswerOf(...): got %v, %q, %v", tc.reason, got, gotName, err)
			}
		})
	}
}

func TestQuestion_BelievedFrom_Recorded(t *testing.T) {
	q := Question{
		State: State{
			Phase:  Running,
			Record: recorded(func(r *Record) { r.RepeatedAt = &metav1.Time{Time: began.Add(time.Minute)} }),
		},
		FirstSeen: began,
	}
	if diff := cmp.Diff(began.Add(59*time.Minute), q.BelievedFrom()); diff != "" {
		t.Errorf("A repetition should be allowed the time from its own beginning: -want, +got:\n%s", diff)
	}
	q.Limits.Recorded = time.Minute
	if diff := cmp.Diff(began.Add(time.Minute), q.BelievedFrom()); diff != "" {
		t.Errorf("The limit of the provider should be shorter than the allowed time: -want, +got:\n%s", diff)
	}
	accepted := q
	accepted.Record.Handle = "op"
	if diff := cmp.Diff(began.Add(59*time.Minute), accepted.BelievedFrom()); diff != "" {
		t.Errorf("The limit should not count for an operation that was accepted: -want, +got:\n%s", diff)
	}
	accepted.Phase, accepted.Record.Handle, accepted.Record.Abandoned = Unknown, "", true
	if diff := cmp.Diff(began.Add(59*time.Minute), accepted.BelievedFrom()); diff != "" {
		t.Errorf("The limit should not count for a poll that failed, either: -want, +got:\n%s", diff)
	}
}

func TestQuestion_NextCreate(t *testing.T) {
	cases := map[string]struct {
		reason           string
		ended, firstSeen time.Time
		want             time.Time
	}{
		"AfterEnd": {
			reason:    "The next create should be announced in the second after the last one ended.",
			ended:     began,
			firstSeen: later,
			want:      began.Add(time.Second),
		},
		"Fraction": {
			reason:    "The next create should be announced when the next second begins.",
			ended:     began.Add(700 * time.Millisecond),
			firstSeen: later,
			want:      began.Add(time.Second),
		},
		"ClockAhead": {
			reason:    "The next create should not wait for another process's clock that is ahead.",
			ended:     later,
			firstSeen: began,
			want:      began.Add(time.Second),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Question{State: State{Phase: Failed, Ended: tc.ended}, FirstSeen: tc.firstSeen}.NextCreate()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nNextCreate(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFirstSeen(t *testing.T) {
	st, f, o := &store.Store{}, &FirstSeen{}, objectWith(nil)
	running := State{Phase: Running, Record: recorded(nil)}
	repetition := State{Phase: Running, Record: recorded(func(r *Record) { r.Holder = "other" })}
	unknown := State{Phase: Unknown, Record: recorded(func(r *Record) { r.Phase = RecordUnknown })}
	announced := State{Phase: Announced, Announcement: at1}
	for _, step := range []struct {
		reason string
		state  State
		at     time.Duration
		want   time.Duration
		forget bool
	}{
		{reason: "A create without an announcement should be seen now.", at: 0, want: 0},
		{reason: "A create should be seen now.", state: announced, at: 0, want: 0},
		{reason: "It should be seen then.", state: announced, at: time.Minute, want: 0},
		{reason: "Another create should be seen now.", state: running, at: 2 * time.Minute, want: 2 * time.Minute},
		{reason: "A repetition should be seen now.", state: repetition, at: 3 * time.Minute, want: 3 * time.Minute},
		{reason: "The end of a create should be seen now.", state: unknown, at: 4 * time.Minute, want: 4 * time.Minute},
		{reason: "It should be seen then.", state: unknown, at: 5 * time.Minute, want: 4 * time.Minute},
		{
			reason: "A create that was forgotten should be seen now.",
			state:  unknown,
			at:     6 * time.Minute,
			want:   6 * time.Minute,
			forget: true,
		},
	} {
		if step.forget {
			f.Forget(st, o)
		}
		if diff := cmp.Diff(began.Add(step.want), f.At(st, o, step.state, began.Add(step.at))); diff != "" {
			t.Errorf("\n%s\nAt(...): -want, +got:\n%s", step.reason, diff)
		}
	}
}

func TestChanges(t *testing.T) {
	const (
		pending   = meta.AnnotationKeyExternalCreatePending
		succeeded = meta.AnnotationKeyExternalCreateSucceeded
		failed    = meta.AnnotationKeyExternalCreateFailed
		name      = meta.AnnotationKeyExternalName
		until     = AnnotationKeyOpenUntil
	)
	r := recorded(nil)
	repeated := recorded(func(r *Record) { r.Repeated = true })
	found := func(s State) Question { return Question{State: s, Limits: Limits{Announced: time.Hour}} }
	openFrom := func(at time.Time) seam.Change { return seam.Change{Key: until, Value: stamp(at.Add(lastRequest))} }
	noRecord := seam.Change{Key: AnnotationKeyRecord, Remove: true}
	cases := map[string]struct {
		reason      string
		annotations map[string]string
		do          func(c Changes) Changes
		want        seam.Changes
		complete    bool // Upstream has to see that the create ended.
	}{
		"Succeeded": {
			reason:      "A success should be stored with its time, and the name with it.",
			annotations: ends(at1, "", ""),
			do:          func(c Changes) Changes { return c.Succeeded(at(at2)).Named("n") },
			want:        seam.Changes{{Key: succeeded, Value: at2}, {Key: name, Value: "n"}},
		},
		"CreateSucceeded": {
			reason: "A success should replace its record.",
			do:     func(c Changes) Changes { return c.CreateSucceeded(r, at(at2)) },
			want:   seam.Changes{noRecord, {Key: succeeded, Value: at2}},
		},
		"CreateSucceededRepeated": {
			reason: "A success should store until when the earlier create may be in progress.",
			do:     func(c Changes) Changes { return c.CreateSucceeded(repeated, at(at2)) },
			want:   seam.Changes{noRecord, {Key: succeeded, Value: at2}, openFrom(began)},
		},
		"CreateSucceededLater": {
			reason: "No time should be stored when the earlier create can no longer be in progress.",
			do:     func(c Changes) Changes { return c.CreateSucceeded(repeated, began.Add(lastRequest)) },
			want:   seam.Changes{noRecord, {Key: succeeded, Value: stamp(began.Add(lastRequest))}},
		},
		"CreateSucceededShort": {
			reason: "A create should be in progress no longer than its timeout.",
			do: func(c Changes) Changes {
				return c.CreateSucceeded(recorded(func(r *Record) {
					r.Repeated, r.Deadline = true, metav1.NewTime(began.Add(10*time.Second))
				}), at(at2))
			},
			want: seam.Changes{
				noRecord, {Key: succeeded, Value: at2}, {Key: until, Value: stamp(began.Add(10 * time.Second))},
			},
		},
		"OperationSucceeded": {
			reason:      "A success should replace its record, and store until when the earlier create may be in progress.",
			annotations: ends(at1, "", ""),
			do:          func(c Changes) Changes { return c.OperationSucceeded(repeated, at(at2)) },
			want:        seam.Changes{noRecord, {Key: succeeded, Value: at2}, openFrom(began)},
		},
		"Confirmed": {
			reason: "A create that was made once should leave nothing in progress when its external resource is found.",
			do:     func(c Changes) Changes { return c.Found(found(State{Record: r}), at(at2)) },
			want:   seam.Changes{noRecord, {Key: succeeded, Value: at2}},
		},
		"ConfirmedRepeated": {
			reason: "A create that was repeated may be in progress when the external resource is found.",
			do:     func(c Changes) Changes { return c.Found(found(State{Record: repeated}), at(at2)) },
			want:   seam.Changes{noRecord, {Key: succeeded, Value: at2}, openFrom(at(at2))},
		},
		"ConfirmedAnnounced": {
			reason: "A create that was announced before may be in progress when the external resource is found.",
			do:     func(c Changes) Changes { return c.Found(found(State{OpenUntil: began}), at(at2)) },
			want:   seam.Changes{noRecord, {Key: succeeded, Value: at2}, openFrom(at(at2))},
		},
		"ClockBehind": {
			reason:      "A create should not end before it was announced.",
			annotations: ends(at2, at1, ""),
			do:          func(c Changes) Changes { return c.Succeeded(at(at1)) },
			want:        seam.Changes{{Key: succeeded, Value: at2, Was: at1, Existed: true}},
		},
		"FractionOfTheSecond": {
			reason:      "A time that is rounded down should not be before the announcement.",
			annotations: ends("2026-01-02T03:04:05.2Z", "", ""),
			do:          func(c Changes) Changes { return c.Succeeded(began.Add(700 * time.Millisecond)) },
			want:        seam.Changes{{Key: succeeded, Value: "2026-01-02T03:04:05.2Z"}},
			complete:    true,
		},
		"ClockAhead": {
			reason:      "A create should not end before another clock, which is ahead, announced it.",
			annotations: ends("2026-01-02T05:04:05+01:00", "", ""),
			do:          func(c Changes) Changes { return c.Succeeded(began.Add(700 * time.Millisecond)) },
			want:        seam.Changes{{Key: succeeded, Value: "2026-01-02T05:04:05+01:00"}},
			complete:    true,
		},
		"Failed": {
			reason:      "A failure should be stored with its time.",
			annotations: ends(at1, "", ""),
			do:          func(c Changes) Changes { return c.Failed(at(at2).Add(time.Millisecond)) },
			want:        seam.Changes{{Key: failed, Value: at2}},
		},
		"Absent": {
			reason:      "A create that is believed absent should have failed when it was announced.",
			annotations: ends(at1, "", ""),
			do:          func(c Changes) Changes { return c.Absent() },
			want:        seam.Changes{{Key: failed, Value: at1}},
		},
		"Incomplete": {
			reason:      "An announcement should get an end.",
			annotations: ends(at1, "", ""),
			do: func(c Changes) Changes {
				return c.SucceededIfIncomplete(at(at2)).FailedIfIncomplete(at(at2))
			},
			want: seam.Changes{{Key: succeeded, Value: at2}, {Key: failed, Value: at2}},
		},
		"Complete": {
			reason:      "An announcement with an end should stay.",
			annotations: ends(at1, at2, ""),
			do: func(c Changes) Changes {
				return c.SucceededIfIncomplete(at(at3)).FailedIfIncomplete(at(at3))
			},
		},
		"Recorded": {
			reason: "A record should be stored as text.",
			do:     func(c Changes) Changes { return c.WithRecord(r) },
			want:   seam.Changes{{Key: AnnotationKeyRecord, Value: r.Text()}},
		},
		"Unrecorded": {
			reason:      "The record that was read should be removed.",
			annotations: map[string]string{AnnotationKeyRecord: "x"},
			do:          func(c Changes) Changes { return c.WithoutRecord() },
			want:        seam.Changes{{Key: AnnotationKeyRecord, Was: "x", Existed: true, Remove: true}},
		},
		"UnrecordedNone": {
			reason: "A record that does not exist should stay missing.",
			do:     func(c Changes) Changes { return c.WithoutRecord() },
			want:   seam.Changes{{Key: AnnotationKeyRecord, Remove: true}},
		},
		"Withdrawn": {
			reason:      "The announcement before the one that is withdrawn should be stored.",
			annotations: ends(at2, "", ""),
			do:          func(c Changes) Changes { return c.Withdrawn(at1) },
			want:        seam.Changes{{Key: pending, Value: at1, Was: at2, Existed: true}},
		},
		"OfAnnounced": {
			reason:      "The changes should be stored only while the announcement is the one that was read.",
			annotations: ends(at1, "", ""),
			do:          func(c Changes) Changes { return c.Named("n").OfAnnounced() },
			want:        seam.Changes{{Key: name, Value: "n"}, {Key: pending, Value: at1, Was: at1, Existed: true}},
		},
		"OfNone": {
			reason: "The changes of an object without an announcement should need no announcement.",
			do:     func(c Changes) Changes { return c.Named("n").OfAnnounced() },
			want:   seam.Changes{{Key: name, Value: "n"}},
		},
		"NothingToStore": {reason: "No change should be nothing.", do: func(c Changes) Changes { return c }},
	}
	for n, tc := range cases {
		t.Run(n, func(t *testing.T) {
			o := objectWith(tc.annotations)
			got := tc.do(On(o)).Changes
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nChanges: -want, +got:\n%s", tc.reason, diff)
			}
			if got.Apply(o); tc.complete && meta.ExternalCreateIncomplete(o) {
				t.Errorf("\n%s\nUpstream sees an incomplete create.", tc.reason)
			}
		})
	}
}

func TestChanges_AbsentWith(t *testing.T) {
	o := objectWith(ends(at1, "", ""))
	r := recorded(func(r *Record) {
		r.Phase, r.Name, r.Repeated, r.Abandoned, r.Exists = RecordUnknown, "n", true, true, true
		r.OpenUntil = &metav1.Time{Time: later}
		r.Failures, r.Error, r.Ended = 2, "interrupted", &metav1.Time{Time: later}
	})
	want := recorded(func(r *Record) {
		r.Phase, r.Failures, r.Error, r.Ended = RecordFailed, 2, "interrupted", &metav1.Time{Time: later}
	})
	if diff := cmp.Diff(On(o).Absent().WithRecord(want).Changes, On(o).AbsentWith(r).Changes); diff != "" {
		t.Errorf("A create that is believed absent should have failed, without a name: -want, +got:\n%s", diff)
	}
}
