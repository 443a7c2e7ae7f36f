package creation

import (
	"time"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// Delays between look-ups of the same create.
const (
	// FirstDelay is the shortest delay.
	FirstDelay = time.Second

	// LastDelay is the longest delay while an external resource may still appear.
	LastDelay = time.Minute

	// LastDelayUnknown is the longest delay if a look-up failed, or cannot tell.
	LastDelayUnknown = 5 * time.Minute
)

// An Action continues, settles or stops a create.
type Action int

// Actions.
const (
	// Proceed as if the outcome of the create were known.
	Proceed Action = iota

	// Resume the operation by its handle.
	Resume

	// LookUp the external resource with the Finder, and ask Next again.
	LookUp

	// Observe the external resource by its name, and ask Next again.
	Observe

	// Adopt the external resource that the Finder found: store its name, and that the
	// create succeeded.
	Adopt

	// Confirm the create whose external resource was observed: store that it succeeded.
	Confirm

	// Repeat the same attempt.
	Repeat

	// BelieveAbsent: store that the create failed. It created nothing.
	BelieveAbsent

	// Wait, and ask Next again after Step.Delay.
	Wait

	// Stop until a person settles the create.
	Stop
)

// A Reason says why a create waits or stops, or is resumed although it has had its time.
type Reason string

// Reasons.
const (
	// MayBeInProgress means that there is no external resource yet. The create may
	// still be in progress, or the external system may not show its result yet.
	MayBeInProgress Reason = "MayBeInProgress"

	// OtherMayBeInProgress means that the external resource is to be deleted, and that another
	// request of its create may still create it again.
	OtherMayBeInProgress Reason = "OtherMayBeInProgress"

	// LookUpFailed means that the Finder returned an error.
	LookUpFailed Reason = "LookUpFailed"

	// CannotTell means that the Finder cannot tell whether there is an external resource.
	CannotTell Reason = "CannotTell"

	// NoLookUp means that the provider has no way to look the external resource up.
	NoLookUp Reason = "NoLookUp"

	// NotAllowed means that the management policies don't allow to repeat the create.
	NotAllowed Reason = "NotAllowed"

	// NoResult means that the operation has had its time, and that its handle has not led to
	// a result.
	NoResult Reason = "NoResult"
)

// An Answer is the result of a look-up or an observation.
type Answer int

// Answers.
const (
	// NotAsked means that there is no answer yet.
	NotAsked Answer = iota

	// Exists means that there is an external resource.
	Exists

	// Absent means that the external system shows no external resource.
	Absent

	// Inconclusive means that the look-up cannot tell.
	Inconclusive

	// Errored means that the look-up failed.
	Errored
)

// ObservedAs returns the answer of an observation.
func ObservedAs(exists bool) Answer {
	if exists {
		return Exists
	}
	return Absent
}

// AnswerOf returns the answer of a Finder and the external name that it found. known means that
// the Finder can tell whether there is an external resource, and name is empty if there is none.
// The error is the Finder's, or says why the name cannot be stored.
func AnswerOf(known bool, name string, err error) (Answer, string, error) {
	if err == nil && known && name != "" {
		err = errors.Wrap(
			seam.CheckText(name, seam.MaxExternalName), "the external name that was found cannot be stored",
		)
	}

	switch {
	case err != nil:
		return Errored, "", err
	case !known:
		return Inconclusive, "", nil
	case name != "":
		return Exists, name, nil
	default:
		return Absent, "", nil
	}
}

// Can lists the capabilities of the provider, and whether the object permits creates.
type Can struct {
	// Resume, Find: the external client implements Resumer, Finder.
	Resume, Find bool

	// Tokens: the external system creates one resource for a token. Names: external
	// names are known before the create, and unique.
	Tokens, Names bool

	// Create: the management policies allow creates.
	Create bool
}

// Limits are the times for which a "not found" is not final.
type Limits struct {
	// Announced is how long a create without a record may be in progress.
	Announced time.Duration

	// Recorded bounds how long a recorded create of another process may be in progress.
	// If it is zero, that is the time that the create was allowed.
	Recorded time.Duration

	// Grace is how long the external system may hide a new external resource.
	Grace time.Duration
}

// A Question is everything that decides the next step.
type Question struct {
	State

	Can    Can
	Limits Limits

	// Lookup and Observed are the answers of the Finder and of Observe.
	Lookup, Observed Answer

	// Deleting means that the object is being deleted.
	Deleting bool

	// DeleteSucceeded means that a Delete of this process has succeeded since the create: an
	// external resource that is absent was deleted.
	DeleteSucceeded bool

	// Now is when the look-up began: the external resource may exist by the time it
	// returns. FirstSeen is when this process first saw the create in this state, which
	// bounds the times of other clocks.
	Now, FirstSeen time.Time
}

// A Step is an action and, if there is one, its reason.
type Step struct {
	Action Action
	Reason Reason

	// Until is when the wait ends, for Wait with MayBeInProgress and OtherMayBeInProgress.
	Until time.Time

	// Delay is when to ask again, for Wait.
	Delay time.Duration
}

// Next returns the next step for the last create: that of the first row that holds. Rows rely on
// the ones above them. It is pure.
func Next(q Question) Step {
	for _, t := range [...]struct {
		name string
		when bool
		then func(q Question) Step
	}{
		{"to be deleted, while another create may create it again", q.Deleting && q.otherOpen() &&
			(q.Observed == Absent || q.Observed == Exists && !q.Can.Names), wait(OtherMayBeInProgress)},
		{"created, and the external system may not show it yet", q.Phase == Created && q.Observed == Absent &&
			!q.DeleteSucceeded && !q.absenceProven(), wait(MayBeInProgress)},
		{"the outcome is known", !q.Incomplete() && q.Phase != Failed && !q.otherExists(), proceed},
		{"a failed create is repeated as upstream does", q.Phase == Failed && !q.Can.Find, proceed},

		{"an operation with a handle is resumed", q.resumable() && !q.overdue(), act(Resume)},
		{"neither its handle nor a look-up has led to a result", q.resumable() && !q.looksUp(), resumeOverdue},

		// The Finder decides, unless the create itself has stored the name.
		{"a Finder is asked", q.asksFinder() && q.Lookup == NotAsked, act(LookUp)},
		{"the Finder failed", q.asksFinder() && q.Lookup == Errored, wait(LookUpFailed)},
		{"the Finder cannot tell", q.asksFinder() && q.Lookup == Inconclusive, wait(CannotTell)},
		{"found, to be deleted, while another process may create it again", q.asksFinder() && q.Lookup == Exists &&
			q.repeatedElsewhere(), wait(OtherMayBeInProgress)},
		{"found", q.asksFinder() && q.Lookup == Exists, act(Adopt)},
		{"absent, and the failed create created nothing", q.asksFinder() && (q.Phase == Failed || q.Phase == Created) &&
			q.absenceProven(), proceed},
		{"absent, and the create may still be in progress", q.asksFinder() && !q.repeatable() &&
			!q.absenceProven(), wait(MayBeInProgress)},
		{"absent for good", q.asksFinder() && !q.repeatable(), act(BelieveAbsent)},

		// Without a Finder, or with a token, the name or a repetition determines the outcome.
		{"the provider cannot look it up", !q.Named && !q.Can.Names && !q.hasToken(), stop(NoLookUp)},
		{"it is observed by its name, or before it is repeated", q.Observed == NotAsked, act(Observe)},
		{"observed, to be deleted, while another process may create it again", q.Observed == Exists &&
			q.repeatedElsewhere(), wait(OtherMayBeInProgress)},
		{"observed", q.Observed == Exists, act(Confirm)},
		{"not observed by name, and the create may still be in progress", q.settledByName() &&
			!q.lastDeleted() && !q.absenceProven(), wait(MayBeInProgress)},
		{"not observed by name for good", q.settledByName(), act(BelieveAbsent)},
		{"only a repetition determines the outcome, and it is not allowed", !q.Can.Create, stop(NotAllowed)},
		{"the same attempt is repeated", true, act(Repeat)},
	} {
		if t.when {
			return t.then(q)
		}
	}
	return Step{Action: Stop, Reason: NoLookUp}
}

// resumable reports whether the operation can be resumed by its handle. One that has failed has ended, also if it
// failed because an external resource exists.
func (q Question) resumable() bool {
	return q.Can.Resume && q.Incomplete() && q.Record != nil && q.Record.Handle != ""
}

// overdue reports whether the operation has had its time, and no request for its result was answered
// since. A clock that is far ahead would hide that.
func (q Question) overdue() bool {
	age := q.Now.Sub(q.Record.Started.Time)
	return q.Phase == Unknown && (age >= q.Record.timeout() || age < -clockSkew)
}

// looksUp reports whether the Finder or the name can still lead to the external resource, or has led
// to it. An absence does not count while the operation's handle may lead to a result.
func (q Question) looksUp() bool {
	switch {
	case q.asksFinder():
		return q.Lookup == NotAsked || q.Lookup == Exists
	case q.Named || q.Can.Names:
		return q.Observed == NotAsked || q.Observed == Exists
	}
	return false
}

// otherExists reports whether the external system has said that an external resource exists, and no longer hides the
// one of an earlier create: the Finder may know another one.
func (q Question) otherExists() bool {
	return q.Phase == Created && q.Record != nil && q.Record.Exists && q.Can.Find && (q.Deleting || q.absenceProven())
}

func (q Question) asksFinder() bool { return q.Can.Find && !q.Named }

// hasToken reports whether the create can be repeated with its token. The token of
// a create without a record is not known.
func (q Question) hasToken() bool { return q.Can.Tokens && q.Record != nil && q.Record.Token != "" }

// repeatable reports whether a create that the Finder did not find can be repeated at once:
// its token prevents a second external resource.
func (q Question) repeatable() bool {
	return q.hasToken() && q.Can.Create && !q.Deleting && q.Phase != Failed
}

// settledByName reports whether the name settles a create whose external resource was not observed.
func (q Question) settledByName() bool {
	return (q.Named || q.Can.Names) && (!q.Can.Create || q.Deleting || !q.hasToken() && !q.Can.Names)
}

// repeatedElsewhere reports whether the external resource is to be deleted while another
// process may still repeat the create. The repetition creates no second external resource while
// the first exists. The external system forgets tokens and names after the delete.
func (q Question) repeatedElsewhere() bool {
	return q.Deleting && q.Record != nil && q.Record.Repeated && !q.Named && !q.absenceProven()
}

// lastDeleted reports whether a Delete has certainly deleted the external resource of the last
// create: no earlier create has succeeded.
func (q Question) lastDeleted() bool { return q.DeleteSucceeded && !q.Confirmed }

// otherOpen reports whether another create than the one whose external resource existed may
// still create it.
//
// While the external resource exists, a late create makes no second one, because of its token or
// name. After the delete it does: with tokens under an unknown name, so the delete waits; with
// names under the same name, so the removal of the finalizer waits.
func (q Question) otherOpen() bool { return q.Now.Before(q.otherEnd()) }

// otherEnd returns when otherOpen ends, or zero if only one create was made.
func (q Question) otherEnd() time.Time {
	if q.OpenUntil.IsZero() {
		return time.Time{}
	}
	end := q.OpenUntil
	if last := Later(q.FirstSeen, lastRequest); end.After(last) {
		// The clock of the process that stored it is ahead.
		end = last
	}
	end = Later(end, q.Limits.Grace)
	if from := q.BelievedFrom(); q.Phase == Announced && from.After(end) {
		return from
	}
	return end
}

// absenceProven reports whether absence proves that the create created nothing.
func (q Question) absenceProven() bool { return !q.Now.Before(q.BelievedFrom()) }

// BelievedFrom returns from when on absence proves that the create created nothing: it has
// certainly ended, and the external system has had the creation grace period to show its
// result. The zero time means at once.
func (q Question) BelievedFrom() time.Time {
	r := q.Record

	switch {
	case q.Phase == Created:
		ended := q.Ended
		if q.FirstSeen.Sub(ended) < clockSkew {
			// The process that stored the end may have another clock.
			ended = q.FirstSeen
		}
		return Later(ended, q.Limits.Grace)
	case q.Phase == Failed && (r == nil || r.OpenUntil == nil):
		return time.Time{}
	case r == nil:
		started := q.Since
		if started.After(q.FirstSeen) {
			// The clock of the other machine is ahead.
			started = q.FirstSeen
		}
		return Later(started, q.Limits.Announced, q.Limits.Grace)
	}

	var allowed time.Duration
	if q.Phase == Running || r.Abandoned {
		allowed = r.timeout()
		// An operation with a handle, and a call that has passed its deadline, may continue after the process has ended.
		if q.Limits.Recorded > 0 && q.Phase == Running && r.Handle == "" {
			allowed = min(allowed, q.Limits.Recorded)
		}
	}
	if r.OpenUntil != nil {
		allowed = max(allowed, r.OpenUntil.Sub(r.HolderStarted()))
	}
	return Later(q.FirstSeen, allowed, q.Limits.Grace)
}

// NextCreate returns from when on another create can be announced. Annotations have a
// resolution of one second: a create that is announced in the second in which the last one
// ended seems to have ended, too. If the clock of the process that stored the end is ahead,
// a second after this process first saw it is enough (Announce).
func (q Question) NextCreate() time.Time {
	ended := q.Ended
	if ended.After(q.FirstSeen) {
		ended = q.FirstSeen
	}
	return ended.Truncate(time.Second).Add(time.Second)
}

func proceed(Question) Step { return Step{Action: Proceed} }

func act(a Action) func(Question) Step {
	return func(Question) Step { return Step{Action: a} }
}

func resumeOverdue(Question) Step { return Step{Action: Resume, Reason: NoResult} }

func stop(r Reason) func(Question) Step {
	return func(Question) Step { return Step{Action: Stop, Reason: r} }
}

func wait(r Reason) func(q Question) Step {
	return func(q Question) Step {
		s := Step{Action: Wait, Reason: r, Until: q.BelievedFrom()}
		if end := q.otherEnd(); r == OtherMayBeInProgress && end.After(s.Until) {
			s.Until = end
		}
		if r == LookUpFailed || r == CannotTell {
			s.Delay = q.delay(LastDelayUnknown)
			return s
		}
		s.Delay = min(q.delay(LastDelay), s.Until.Sub(q.Now))
		return s
	}
}

// delay returns the wait before the next look-up: the time since the first one, from FirstDelay
// to last.
func (q Question) delay(last time.Duration) time.Duration {
	if q.FirstSeen.After(q.Now) {
		return last
	}
	return min(max(q.Now.Sub(q.FirstSeen), FirstDelay), last)
}
