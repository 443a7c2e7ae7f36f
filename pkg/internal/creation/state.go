package creation

import (
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AnnotationKeyPending is upstream's annotation that announces a create, for messages that
// ask a person to remove it.
const AnnotationKeyPending = meta.AnnotationKeyExternalCreatePending

// AnnotationKeyRefused is set on a managed resource whose external resource was not created
// because it appeared right before. The value says which external resource was refused.
const AnnotationKeyRefused = "graft.crossplane.io/create-refused"

// AnnotationKeyOpenUntil is set when a create gets no answer, or is repeated although it may be in
// progress. Its value is the time until which that create may still create the external
// resource, even after a delete.
const AnnotationKeyOpenUntil = "graft.crossplane.io/create-open-until"

// A Phase says how far the last create of an object is.
type Phase string

// Phases of a create.
const (
	// None means that no create was announced.
	None Phase = ""

	// Announced means that a create was announced and has no record and no end. A
	// process runs it, or was interrupted.
	Announced Phase = "Announced"

	// Running means that a create has a record that says that it runs. Its holder runs
	// it, or was interrupted.
	Running Phase = "Running"

	// Unknown means that the create has ended, or is not waited for any more, and that
	// its outcome is unknown.
	Unknown Phase = "Unknown"

	// Failed means that the create failed. It created nothing, if its error is right.
	Failed Phase = "Failed"

	// Created means that the create succeeded, or failed because the external resource of an
	// earlier create exists.
	Created Phase = "Created"

	// Refused means that Graft did not create the external resource, because one with
	// the same name appeared right before.
	Refused Phase = "Refused"
)

// A State describes the last create of an object.
type State struct {
	Phase Phase

	// Name is the external name, which a create that has not succeeded may have set.
	// It is empty if the object has none.
	Name string

	// Named means that the last create itself stored Name, so it created an external resource. It does not if
	// another writer has replaced the name since.
	Named bool

	// Announcement is the text of upstream's annotation external-create-pending. It
	// identifies the last create that was announced. It is empty if none was.
	Announcement string

	// Since is when the last create was announced, or when its recorded attempt began.
	// Ended is when it ended. Both are by the clock of the process that wrote them, and
	// zero if not known.
	Since, Ended time.Time

	// OpenUntil is until when an interrupted or unanswered create may still be carried out, by
	// the clock of the process that wrote it. It may be past, and is zero if there was none.
	OpenUntil time.Time

	// Confirmed means that a create of this object has succeeded at some time. That may
	// have been a create before the last one.
	Confirmed bool

	// Record of the last operation, or nil. It is left out if another writer announced or
	// settled a create since.
	Record *Record

	// Recorded means that there is a record, including one that cannot be used.
	Recorded bool

	// Settled means that another writer has settled the recorded create: its record is
	// to be removed.
	Settled bool
}

// Of returns the state of the last create of o. An error says why the record cannot be used.
// The state is still valid then: a create with an unusable record has an unknown outcome.
func Of(o client.Object) (State, error) {
	s := fromAnnotations(o)
	r, err := RecordOf(o)

	switch {
	case err != nil:
		s.Phase, s.Recorded = Unknown, true
		return s, err
	case r == nil:
		return s, nil
	}

	s.Recorded = true
	switch {
	case r.superseded(o):
		s.Phase = Announced
	case r.Type != Create:
		s.Record = r
		if s.Phase == Announced {
			// An update or delete begins only if the external resource exists.
			s.Phase = Created
		}
	case r.settledElsewhere(o):
		s.Settled = true
	default:
		s.applyRecord(r)
	}
	return s, nil
}

// fromAnnotations returns the state without the record.
func fromAnnotations(o client.Object) State {
	pending, succeeded, failed := timeOf(o, meta.AnnotationKeyExternalCreatePending),
		timeOf(o, meta.AnnotationKeyExternalCreateSucceeded), timeOf(o, meta.AnnotationKeyExternalCreateFailed)
	s := State{
		Name:         meta.GetExternalName(o),
		Announcement: pendingOf(o),
		Since:        pending,
		Confirmed:    !succeeded.IsZero(),
	}
	// A person who removes the announcement has settled every create.
	if until := timeOf(o, AnnotationKeyOpenUntil); s.Announcement != "" && until.After(pending.Add(-clockSkew)) {
		s.OpenUntil = until
	}

	switch {
	case pending.After(succeeded) && pending.After(failed):
		s.Phase = Announced
	case failed.After(succeeded):
		s.Phase, s.Ended = Failed, failed
	case s.Confirmed:
		s.Phase, s.Ended = Created, succeeded
	}

	if as := o.GetAnnotations()[AnnotationKeyRefused]; as != "" && as == RefusedAs(o) && (s.Phase == None ||
		s.Phase == Failed) {
		s.Phase = Refused
	}
	return s
}

// applyRecord completes the state from the record of the last create.
func (s *State) applyRecord(r *Record) {
	s.Record, s.Named, s.Since = r, r.Name != "" && r.Name == s.Name, r.Started.Time
	s.Ended = time.Time{}
	if r.Ended != nil {
		s.Ended = r.Ended.Time
	}

	switch {
	case r.Phase == RecordRunning:
		s.Phase = Running
	case r.Phase == RecordUnknown, r.Name != "": // A create that has stored a name has created something.
		s.Phase = Unknown
	case r.Exists:
		s.Phase = Created
	default:
		s.Phase = Failed
	}
}

// Incomplete reports whether the outcome of the last create is not known: it may be in
// progress, or may have created the external resource.
func (s State) Incomplete() bool {
	return s.Phase == Announced || s.Phase == Running || s.Phase == Unknown
}

// MayExist reports whether a create of this object may have created an external resource, or
// may still do so. An earlier create that succeeded counts although a later one failed: the
// external system may hide the external resource, and reject the later create because of it.
func (s State) MayExist() bool { return s.Incomplete() || s.Confirmed }

// ID identifies the last create, its phase and, if it has a record, its process. A repetition
// has another ID.
func (s State) ID() string {
	if s.Record == nil {
		return string(s.Phase) + " " + s.Announcement
	}
	return s.Record.Holder + " " + s.Record.Token + " " + s.Record.Deadline.UTC().Format(time.RFC3339) + " " +
		string(s.Record.Phase)
}

// An Identity says which external resource an object has. Two states of one object with the
// same identity mean the same external resource.
type Identity struct{ name, pending, succeeded, failed string }

// IdentityOf returns the identity of o.
func IdentityOf(o client.Object) Identity {
	a := o.GetAnnotations()
	return Identity{
		name:      a[meta.AnnotationKeyExternalName],
		pending:   a[meta.AnnotationKeyExternalCreatePending],
		succeeded: a[meta.AnnotationKeyExternalCreateSucceeded],
		failed:    a[meta.AnnotationKeyExternalCreateFailed],
	}
}

// RefusedAs returns the value of AnnotationKeyRefused that refuses the external resource of
// o. Without an external name it cannot be told from another one.
func RefusedAs(o client.Object) string {
	if n := meta.GetExternalName(o); n != "" {
		return n
	}
	return string(o.GetUID())
}

// pendingOf returns which create upstream announced last. It is empty if the annotation is
// not a timestamp, which upstream ignores.
func pendingOf(o client.Object) string {
	if timeOf(o, meta.AnnotationKeyExternalCreatePending).IsZero() {
		return ""
	}
	return o.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]
}

// timeOf returns the time of an annotation as upstream reads it. Unlike upstream it does not
// parse an annotation that is missing, which allocates an error.
func timeOf(o client.Object, key string) time.Time {
	text := o.GetAnnotations()[key]
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

func endsOf(o client.Object) Ends {
	a := o.GetAnnotations()
	return Ends{
		Succeeded: Clean(a[meta.AnnotationKeyExternalCreateSucceeded], 64),
		Failed:    Clean(a[meta.AnnotationKeyExternalCreateFailed], 64),
	}
}

// Renamed reports whether a write of the provider's own has shown that another writer changed the
// external name. before and now are the names in memory; stored is the name that the API server had
// before. The answer to a write has the stored name, also if an initializer or Connect has set
// another one in memory: that is no change.
func Renamed(before, now, stored string) bool {
	return before != "" && now != "" && now != before && now != stored
}

// NewlyAnnounced reports whether o announces a create that stored, the object on the API server,
// does not announce. Both announcements may have the same time, because they have a resolution
// of one second.
func NewlyAnnounced(o, stored client.Object) bool {
	key := meta.AnnotationKeyExternalCreatePending
	again := meta.ExternalCreateIncomplete(o) && !meta.ExternalCreateIncomplete(stored)
	pending := o.GetAnnotations()[key]
	return pending != "" && (pending != stored.GetAnnotations()[key] || again)
}

// Announces reports whether r was made when the last create of o was announced.
func (r *Record) Announces(o client.Object) bool { return r.Announcement == pendingOf(o) }

// superseded reports whether a create was announced after the record was made, and has not
// ended: a provider without Graft was interrupted. The record does not describe that create.
//
// A clock that is behind announces a create that seems to have ended before it began. So a
// changed text counts, not the time.
func (r *Record) superseded(o client.Object) bool {
	if p := pendingOf(o); p == "" || p == r.Announcement {
		return false
	}
	return meta.ExternalCreateIncomplete(o) || r.EndsBefore != nil && *r.EndsBefore == endsOf(o)
}

// settledElsewhere reports whether upstream's annotations say that the recorded create has
// ended, although its record is still there: a provider without Graft, or a person, has
// settled it.
//
// The annotations have a resolution of one second, and clocks differ. So a changed text
// counts, not the time.
func (r *Record) settledElsewhere(o client.Object) bool {
	switch {
	case r.Phase == RecordFailed:
		return false
	case pendingOf(o) == "":
		// Upstream's message asks a person to remove the annotation. A record without an announcement of its
		// own is not settled that way.
		return r.Announcement != ""
	case meta.ExternalCreateIncomplete(o):
		return false
	case r.EndsBefore != nil:
		return *r.EndsBefore != endsOf(o)
	default:
		// Only a create that was announced later says anything about this one.
		return pendingOf(o) != r.Announcement
	}
}

// Last returns the state of the last create of o. The outcome is unknown if the record of
// the create is not valid.
func Last(o client.Object) State {
	s, _ := Of(o)
	return s
}
