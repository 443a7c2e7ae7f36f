package asyncstate

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AnnotationKeyOperation is the annotation that holds the record of an object's
// operation, from before it can reach the external system until its result is stored.
// It is Graft's to write. Removing it tells Graft that the matter is settled: see
// docs/async.md first.
const AnnotationKeyOperation = "graft.crossplane.io/async-operation"

// recordVersion is that of the records that are written and read here.
const recordVersion = 1

// How many bytes they may have. What the API server allows all annotations of an
// object together is 256 KiB.
const (
	maxHandle = 32 << 10
	maxRecord = 40 << 10
	maxError  = 1 << 10
)

// A phase of a recorded operation.
type phase string

const (
	// phaseRunning: its holder runs it, or died before it could say anything.
	phaseRunning phase = "running"

	// phaseFailed: the external system refused it.
	phaseFailed phase = "failed"

	// phaseUnknown: it has ended, and its outcome is unknown.
	phaseUnknown phase = "unknown"
)

// A record of an operation is all that is left of it when the process dies.
type record struct {
	Version int       `json:"version"`
	UID     types.UID `json:"uid"`
	Type    Type      `json:"type"`
	Phase   phase     `json:"phase"`
	Attempt int       `json:"attempt"`
	Token   string    `json:"token"`

	// Holder is the tracker that runs it. Two are never the same, in whatever
	// process.
	Holder string `json:"holder"`

	// Pending is what upstream's annotation said when the record was made: which
	// create was the last one that was announced.
	Pending string `json:"pending,omitempty"`

	// Announced is what upstream's annotations said then of creates that had ended.
	// It is missing if upstream says that a create has succeeded as soon as it has
	// begun.
	Announced *announced `json:"announced,omitempty"`

	// Generation of the object when it began.
	Generation int64 `json:"generation,omitempty"`

	// Started is when the attempt began, Began when its holder did, if that is
	// another who repeats it. Deadline is by the clock of the holder.
	Started  metav1.Time  `json:"started"`
	Began    *metav1.Time `json:"began,omitempty"`
	Deadline metav1.Time  `json:"deadline"`

	// Open is until when the same attempt of another process may be in progress, by the
	// clock of the holder, which repeats it. It is missing if that attempt was seen to end.
	Open *metav1.Time `json:"open,omitempty"`

	// Abandoned says that it has not ended, but is not waited for any more.
	Abandoned bool `json:"abandoned,omitempty"`

	// Ended is when it was seen to end, or was abandoned, without success.
	Ended *metav1.Time `json:"ended,omitempty"`

	// Failures counts the attempts in a row, and the repetitions of one, that
	// ended without success; Error is of what kind the last one's error was.
	Failures int    `json:"failures,omitempty"`
	Error    string `json:"error,omitempty"`

	// Named says that the external name is the one that this operation set.
	Named  bool   `json:"named,omitempty"`
	Handle string `json:"handle,omitempty"`

	// Repeated says that the attempt was made more than once, so that to be
	// refused now doesn't mean to have been refused before.
	Repeated bool `json:"repeated,omitempty"`
}

// announced is the text of upstream's annotations that say when a create ended.
type announced struct {
	Succeeded string `json:"succeeded,omitempty"`
	Failed    string `json:"failed,omitempty"`
}

func announcedOn(o client.Object) announced {
	a := o.GetAnnotations()
	return announced{Succeeded: clean(a[meta.AnnotationKeyExternalCreateSucceeded], 64), Failed: clean(a[meta.AnnotationKeyExternalCreateFailed], 64)}
}

// pendingOn returns which create upstream's annotation says was announced last. It is
// empty if upstream does not take it for an announcement.
func pendingOn(o client.Object) string {
	if meta.GetExternalCreatePending(o).IsZero() {
		return ""
	}
	return o.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]
}

// superseded reports whether upstream's annotations say that a create was announced
// after the record was made, and has not ended: a provider without Graft was
// interrupted. Whatever the record is of says nothing about that create.
//
// A clock that is behind announces what seems to have ended before. So it matters more
// that the annotations changed than what time they say.
func (r *record) superseded(o client.Object) bool {
	if p := pendingOn(o); p == "" || p == r.Pending {
		return false
	}
	return meta.ExternalCreateIncomplete(o) || r.Announced != nil && *r.Announced == announcedOn(o)
}

// settledElsewhere reports whether upstream's annotations say that the recorded
// create has ended, although its record is still there: a provider without Graft, or
// a person, has settled it meanwhile.
//
// The annotations count whole seconds, of clocks that may differ. So that they say
// something else than when the create was announced matters more than what time they
// say.
func (r *record) settledElsewhere(o client.Object) bool {
	switch {
	case r.Type != Create || r.Phase == phaseFailed:
		return false
	case pendingOn(o) == "":
		// Upstream's own message asks for that.
		return true
	case meta.ExternalCreateIncomplete(o):
		return false
	case r.Announced != nil:
		return *r.Announced != announcedOn(o)
	default:
		// Only another create, announced later, says anything of this one.
		return pendingOn(o) != r.Pending
	}
}

// recordOf returns the record that o has, or nil if it has none. An error wraps
// ErrRecord, and names the field that is to blame.
func recordOf(o client.Object) (*record, error) {
	text, ok := o.GetAnnotations()[AnnotationKeyOperation]
	if !ok {
		return nil, nil //nolint:nilnil // Most objects have none.
	}
	r := &record{}

	// The version says how to read the rest.
	v := struct {
		Version int `json:"version"`
	}{}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, unreadable(text, err)
	}
	if v.Version != recordVersion {
		return nil, badField("version", "it is %d, and this version of the provider reads %d only", v.Version, recordVersion)
	}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, unreadable(text, err)
	}
	if err := r.check(o); err != nil {
		return nil, err
	}
	return r, nil
}

// unreadable returns an error that says why a record can't be read: which field it
// is, if it is one.
func unreadable(text string, err error) error {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) && typ.Field != "" {
		return badField(typ.Field, "it is a %s, and not what it should be", typ.Value)
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(text), &fields) == nil {
		for _, k := range []string{"started", "deadline", "ended"} {
			if v, ok := fields[k]; ok && json.Unmarshal(v, &metav1.Time{}) != nil {
				return badField(k, "%s is no time", clean(string(v), 64))
			}
		}
	}
	return errors.Wrapf(ErrRecord, "annotation %s: %s", AnnotationKeyOperation, clean(err.Error(), maxError))
}

// check that the record is one of o's that can be used.
func (r *record) check(o client.Object) error {
	switch {
	case r.UID != o.GetUID():
		return badField("uid", "it is that of another object, %q: this one is a copy of it, or was restored", clean(string(r.UID), 64))
	case r.Type != Create && r.Type != Update && r.Type != Delete:
		return badField("type", "%q is none of create, update and delete", clean(string(r.Type), 64))
	case r.Phase != phaseRunning && r.Phase != phaseFailed && r.Phase != phaseUnknown:
		return badField("phase", "%q is none of running, failed and unknown", clean(string(r.Phase), 64))
	case r.Attempt < 1:
		return badField("attempt", "%d is less than 1", r.Attempt)
	case r.Token == "":
		return badField("token", "it is empty")
	case r.Holder == "":
		return badField("holder", "it is empty")
	case r.Started.IsZero():
		return badField("started", "it is no time")
	case r.Deadline.Time.Before(r.began()):
		return badField("deadline", "it is before the start")
	case r.Phase != phaseRunning && r.Ended == nil:
		return badField("ended", "it is missing")
	case r.Failures < 0:
		return badField("failures", "%d is less than 0", r.Failures)
	}
	return nil
}

func badField(name, format string, args ...any) error {
	return errors.Wrapf(ErrRecord, "annotation %s, field %q: %s", AnnotationKeyOperation, name, errors.Errorf(format, args...))
}

// text of the annotation.
func (r *record) text() string {
	var b strings.Builder

	// An annotation is no web page: what is escaped needlessly is six times as long.
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)

	// A struct of strings, numbers and times can always be encoded.
	_ = enc.Encode(r)
	return strings.TrimSuffix(b.String(), "\n")
}

// began returns when the holder of the record began, by its own clock.
func (r *record) began() time.Time {
	if r.Began != nil {
		return r.Began.Time
	}
	return r.Started.Time
}

func (r *record) attempt() Attempt {
	return Attempt{Type: r.Type, Number: r.Attempt, Token: r.Token, Handle: r.Handle, Started: r.Started.Time}
}

// ended returns the record of an operation that ended with err.
func (r *record) ended(err error, at time.Time) *record {
	out := *r
	out.Phase, out.Abandoned = phaseFailed, false

	// Of an attempt that was made before, a refusal says nothing.
	if r.Type == Create && (OutcomeUnknown(err) || r.Repeated) {
		out.Phase = phaseUnknown
	}

	// What only the end of the process cut off can be resumed.
	if r.Handle != "" && errors.Is(err, ErrStopped) {
		out.Phase = phaseUnknown
	}
	t := metav1.NewTime(at)
	out.Ended, out.Failures, out.Error = &t, r.Failures+1, classOf(err)
	return &out
}

// clean returns s without control characters, and no longer than longest bytes,
// fit for a message.
func clean(s string, longest int) string {
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
