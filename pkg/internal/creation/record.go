package creation

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// AnnotationKeyRecord is the annotation that holds the record of an asynchronous
// operation.
const AnnotationKeyRecord = seam.AnnotationKeyRecord

// recordVersion is the only version of records that this package reads and writes.
const recordVersion = 1

// MaxRecord is how many bytes a record may have. The API server allows 256 KiB for all
// annotations of an object together.
const MaxRecord = 40 << 10

// maxQuote is how many bytes of an unusable record an error quotes.
const maxQuote = 1 << 10

// ErrRecord is wrapped by errors about a record that cannot be used.
var ErrRecord = errors.New("cannot use the record of an operation")

// An OperationType is the type of a recorded operation.
type OperationType string

// Types of operations.
const (
	Create OperationType = "create"
	Update OperationType = "update"
	Delete OperationType = "delete"
)

// A RecordPhase says how far a recorded operation is.
type RecordPhase string

// Phases of a recorded operation.
const (
	// RecordRunning means that the holder runs the operation, or died before it stored
	// an outcome.
	RecordRunning RecordPhase = "running"

	// RecordFailed means that the operation failed, and that a create created nothing.
	RecordFailed RecordPhase = "failed"

	// RecordUnknown means that the operation has ended with an unknown outcome.
	RecordUnknown RecordPhase = "unknown"
)

// A Record is stored before its operation can reach the external system. After a crash,
// nothing else is known about the operation.
type Record struct {
	Version int           `json:"version"`
	UID     types.UID     `json:"uid"`
	Type    OperationType `json:"type"`
	Phase   RecordPhase   `json:"phase"`
	Attempt int           `json:"attempt"`
	Token   string        `json:"token"`

	// Holder is the tracker that runs the operation. No two trackers have the same, in
	// any process.
	Holder string `json:"holder"`

	// Announcement is the text of upstream's annotation external-create-pending when the
	// record was made. It identifies the create that was announced last.
	Announcement string `json:"pending,omitempty"`

	// EndsBefore is the text of upstream's annotations about the end of creates when the
	// record was made: later ones are about this create. It is nil without package managed,
	// where upstream records a success as soon as the create has begun.
	EndsBefore *Ends `json:"announced,omitempty"`

	// Generation of the object when the operation began.
	Generation int64 `json:"generation,omitempty"`

	// Started is when the attempt began. RepeatedAt is the start of the holder's
	// repetition; nil for a first attempt. Deadline is by the clock of the holder.
	Started    metav1.Time  `json:"started"`
	RepeatedAt *metav1.Time `json:"began,omitempty"`
	Deadline   metav1.Time  `json:"deadline"`

	// OpenUntil is until when the same attempt of another process may be in progress, by the
	// clock of the holder. It is missing if that attempt has ended.
	OpenUntil *metav1.Time `json:"open,omitempty"`

	// Abandoned means that the operation has not ended, but nothing waits for it.
	Abandoned bool `json:"abandoned,omitempty"`

	// Ended is when the operation ended without success, or was abandoned.
	Ended *metav1.Time `json:"ended,omitempty"`

	// Failures counts the attempts and repetitions in a row that ended without success.
	// Error is the class of the last error.
	Failures int    `json:"failures,omitempty"`
	Error    string `json:"error,omitempty"`

	// Name is the external name that this operation itself set. The object may have another one: other writers
	// change annotations.
	Name   string `json:"name,omitempty"`
	Handle string `json:"handle,omitempty"`

	// Exists means that the create failed because the external resource of an earlier create exists.
	Exists bool `json:"exists,omitempty"`

	// Repeated means that the attempt was made more than once. A repetition that fails does
	// not mean that the first one failed.
	Repeated bool `json:"repeated,omitempty"`
}

// Ends is the text of upstream's annotations that say when a create ended.
type Ends struct {
	Succeeded string `json:"succeeded,omitempty"`
	Failed    string `json:"failed,omitempty"`
}

// RecordOf returns the record of o, or nil if o has none. An error wraps ErrRecord and names
// the field that cannot be used.
//
// The record of an update or a delete of another object counts as none: o is a copy, or was restored from a
// backup, and its external resource can be observed.
func RecordOf(o client.Object) (*Record, error) {
	text, ok := o.GetAnnotations()[AnnotationKeyRecord]
	if !ok {
		return nil, nil //nolint:nilnil // Most objects have none.
	}
	r := &Record{}

	// The version says how to read the other fields.
	v := struct {
		Version int `json:"version"`
	}{}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, unreadable(text, err)
	}
	if v.Version != recordVersion {
		return nil, badField(
			"version", "it is %d, and this version of the provider reads only %d", v.Version, recordVersion,
		)
	}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, unreadable(text, err)
	}
	if r.UID != o.GetUID() && (r.Type == Update || r.Type == Delete) {
		return nil, nil //nolint:nilnil // As above.
	}
	if err := r.check(o); err != nil {
		return nil, err
	}
	return r, nil
}

// HasFailed reports whether the operation failed, or failed before it was begun again. r may be nil.
func (r *Record) HasFailed() bool { return r != nil && r.Error != "" }

// Follows counts the attempt of r after that of had, an earlier record of the same type.
func (r *Record) Follows(had *Record) {
	// The failure is reported until an attempt succeeds.
	r.Attempt, r.Failures, r.Error = had.Attempt, had.Failures, had.Error
	if had.Phase != RecordRunning {
		r.Attempt = increment(had.Attempt)
	}
}

// NewRecord returns the record of an operation on o that holder begins now, with this token.
// It must end within timeout.
func NewRecord(o client.Object, typ OperationType, holder, token string, now time.Time, timeout time.Duration) *Record {
	ends, started := endsOf(o), metav1.NewTime(now)
	return &Record{
		Version:      recordVersion,
		UID:          o.GetUID(),
		Type:         typ,
		Phase:        RecordRunning,
		Attempt:      1,
		Token:        token,
		Holder:       holder,
		Announcement: pendingOf(o),
		EndsBefore:   &ends,
		Generation:   o.GetGeneration(),
		Started:      started,
		Deadline:     metav1.NewTime(Later(now, timeout)),
	}
}

// unreadable returns an error that says why a record cannot be decoded. It names the field
// that cannot be decoded, if there is one.
func unreadable(text string, err error) error {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) && typ.Field != "" {
		return badField(typ.Field, "cannot be a %s", typ.Value)
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(text), &fields) == nil {
		for _, k := range []string{"started", "deadline", "ended"} {
			if v, ok := fields[k]; ok && json.Unmarshal(v, &metav1.Time{}) != nil {
				return badField(k, "%s is not a valid timestamp", Clean(string(v), 64))
			}
		}
	}
	return errors.Wrapf(ErrRecord, "annotation %s: %s", AnnotationKeyRecord, Clean(err.Error(), maxQuote))
}

// check returns an error unless r is a record of o that can be used.
func (r *Record) check(o client.Object) error {
	switch {
	case r.UID != o.GetUID():
		return badField(
			"uid", "it belongs to another object, %q: this object is a copy, or was restored from a backup",
			Clean(string(r.UID), 64),
		)
	case r.Type != Create && r.Type != Update && r.Type != Delete:
		return badField("type", "%q is not create, update or delete", Clean(string(r.Type), 64))
	case r.Phase != RecordRunning && r.Phase != RecordFailed && r.Phase != RecordUnknown:
		return badField("phase", "%q is not running, failed or unknown", Clean(string(r.Phase), 64))
	case r.Attempt < 1:
		return badField("attempt", "%d is less than 1", r.Attempt)
	case r.Token == "":
		return badField("token", "it is empty")
	case r.Holder == "":
		return badField("holder", "it is empty")
	case r.Started.IsZero():
		return badField("started", "it is missing")
	case r.Deadline.Time.Before(r.HolderStarted()):
		return badField("deadline", "it is before the start")
	case r.Phase != RecordRunning && r.Ended == nil:
		return badField("ended", "it is missing")
	case r.Failures < 0:
		return badField("failures", "%d is less than 0", r.Failures)
	}
	return nil
}

func badField(name, format string, args ...any) error {
	return errors.Wrapf(
		ErrRecord, "annotation %s, field %q: %s", AnnotationKeyRecord, name, errors.Errorf(format, args...),
	)
}

// Text returns the value of the annotation.
func (r *Record) Text() string {
	var b strings.Builder

	// Don't escape HTML characters: that makes the annotation up to six times longer.
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)

	// A struct of strings, numbers and times can always be encoded.
	_ = enc.Encode(r)
	return strings.TrimSuffix(b.String(), "\n")
}

// HolderStarted returns when the holder began the operation or its repetition, by its own clock.
func (r *Record) HolderStarted() time.Time {
	if r.RepeatedAt != nil {
		return r.RepeatedAt.Time
	}
	return r.Started.Time
}

// followsSuccess reports whether an earlier create has succeeded. Without package managed that is not
// known: upstream records a success as soon as a create has begun.
func (r *Record) followsSuccess() bool { return r.EndsBefore != nil && r.EndsBefore.Succeeded != "" }

// timeout returns how long the holder may take.
func (r *Record) timeout() time.Duration { return r.Deadline.Sub(r.HolderStarted()) }

// Failure says how a recorded operation ended without success.
type Failure struct {
	// At is when it ended.
	At time.Time

	// Class of the error. A record has no text of errors: more users may read
	// annotations than status.
	Class string

	// Unknown means that the external system may have carried the operation out.
	Unknown bool

	// Forgotten means that the external system does not show the operation.
	Forgotten bool

	// Resumable means that only the end of the process interrupted the operation, so
	// that another process can resume it.
	Resumable bool
}

// WithFailure returns the record of an operation that ended without success.
//
// The outcome of a create is unknown after any error if an earlier attempt with the same
// token may have succeeded, or if the create itself has stored an external name: an external
// resource was created. The handle of an earlier attempt is not known: the one of a repetition
// that failed is removed, so that the attempt is repeated and not resumed. So is one whose operation
// failed after it had set a name, so that it is observed by the name: the error may have been one of
// a poll. A handle that the external system no longer knows is removed when the first attempt has had
// its time. Any other handle of a create with an unknown outcome is kept. Without an answer of the
// operation itself, absence proves nothing while the operation may take.
func (r *Record) WithFailure(f Failure) *Record {
	out := *r
	out.Phase, out.Abandoned, out.Exists = RecordFailed, false, false
	if r.Type == Create && (f.Unknown || r.Repeated || r.Name != "") || r.Handle != "" && f.Resumable {
		out.Phase = RecordUnknown
	}
	failed := !f.Unknown && !f.Resumable
	forgotten := f.Forgotten && !r.Repeated && f.At.After(Later(r.Started.Time, r.timeout(), clockSkew))
	if out.Phase == RecordUnknown && (failed || forgotten) {
		out.Handle = ""
	}
	if r.Type == Create && r.Handle != "" && (f.Unknown || f.Resumable || r.Name != "") {
		// By the clock of the holder. That of the process that began the attempt may differ.
		out.Abandoned = !f.At.After(r.Deadline.Time)
	}
	at := metav1.NewTime(f.At)
	out.Ended, out.Failures, out.Error = &at, increment(r.Failures), f.Class
	return &out
}

// Clean returns s without control characters, cut to at most longest bytes, so that it can be
// part of a message.
func Clean(s string, longest int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))

	if len(s) <= longest {
		return s
	}
	const more = "…"
	s = s[:longest-len(more)]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + more
}
