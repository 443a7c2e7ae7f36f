// Package failure interprets the errors of providers: whether the request that it ended may
// have been carried out, whether the external system throttles, and whether a retry makes sense.
// Nothing else in Graft reads the errors of SDKs.
//
// Evidence has three levels. A statement of the provider's author (NoAnswer, Refused, Throttled,
// Terminal) wins over typed evidence (statuses, interfaces, errors of the network), which wins over
// the text. At each level the outer error wins over the errors that it wraps. Of errors that are
// joined, the one wins that leaves most open, because each may be about a request of its own.
package failure

import (
	"cmp"
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/pkg/errors"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
)

// An Answer is the outcome of a request as its error shows it. A later constant leaves more open.
type Answer int

const (
	// Unsaid means that the error says nothing about a request. As in upstream, nothing was
	// carried out then.
	Unsaid Answer = iota

	// Refused means that the external system has refused the request.
	Refused

	// NotFound means that the external system has refused the request because something does not
	// exist.
	NotFound

	// Unserved means that the request was never sent, or was refused because of its caller, who
	// has to log in, is not allowed to make it, or is throttled. It says nothing about an
	// operation that an earlier request started.
	Unserved

	// NoAnswer means that the request may have been carried out.
	NoAnswer
)

// Evidence is why an error has its meaning. A later constant wins.
type Evidence int

const (
	// None means that the error says nothing.
	None Evidence = iota
	// Text may quote a user's words.
	Text
	// Typed evidence is a status, a code, or an error of a known type.
	Typed
	// Stated means that the provider's author says so.
	Stated
)

// A Meaning is the interpretation of an error. An error without evidence has the zero Meaning.
type Meaning struct {
	Answer   Answer
	Evidence Evidence

	// Exists reports whether the request was refused because the external resource exists.
	Exists bool

	// Throttled reports whether the external system limits calls. After is how long to wait, at
	// most a day. Zero means that the answer gave no time.
	Throttled bool
	After     time.Duration

	// Terminal reports whether the same call returns the same error again.
	Terminal bool

	// APIServer reports whether this is an answer of a Kubernetes API server, which is the
	// external system of some providers only.
	APIServer bool
}

// Of returns what err means. now is the time at which it was returned.
func Of(err error, now time.Time) Meaning {
	if err == nil {
		return Meaning{}
	}
	m, _ := ofTypes(err, now)
	switch text := err.Error(); {
	case m.Evidence == Stated:
	case m.Evidence < Typed:
		return m.worse(OfText(text))
	case m.Answer != NoAnswer && matches("login", text):
		m.Answer = Unserved
	case strings.Contains(text, "Future#WaitForCompletion"):
		m.Answer = NoAnswer // Azure has accepted the request.
	case m.Answer == Refused:
		m.Exists = m.Exists || OfText(text).Exists // Google Cloud's code is in the text only.
	case m.Answer == Unserved && !m.Throttled && matches("attempts", text):
		m.Answer = NoAnswer // The last request was not sent, but an earlier one may have been.
	}
	return m
}

// Lost reports whether the request that err ended may have been carried out, by evidence of at least this level.
func Lost(err error, at Evidence) bool {
	m := Of(err, time.Time{})
	return m.Answer == NoAnswer && m.Evidence >= at
}

// Exists reports whether a create failed with err because the external resource of that name exists.
func Exists(err error, name string) bool {
	if err == nil {
		return false
	}
	m, text := Of(err, time.Time{}), err.Error()
	words := `(?i)(?:^|\W)` + regexp.QuoteMeta(name) + `\W{0,3} (?:is )?already (?:exist|owned|in use|taken)`
	return m.Exists || m.Answer <= Refused && name != "" && regexp.MustCompile(words).MatchString(text)
}

// Cancelled reports whether err says that a context was cancelled, in Go's words, in gRPC's, or in the
// text of an SDK's error that quotes its cause.
func Cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || matches("cancelled", err.Error())
}

// ofTypes returns the meaning of err by statements and types, and the external system's own code that the
// outermost error has. The causes count if err itself says nothing.
func ofTypes(err error, now time.Time) (m Meaning, code string) {
	if s, ok := err.(*statement); ok { //nolint:errorlint // The causes are visited one by one.
		return s.meaning, ""
	}
	defer func() { _ = recover() }() // Methods of SDKs' errors may panic if there was no response.
	joined := causes(err)
	for _, cause := range joined {
		if cause == nil {
			continue
		}
		inner, innerCode := ofTypes(cause, now)
		if len(joined) > 1 && inner.Evidence == None && OfText(cause.Error()).Answer == NoAnswer {
			inner = Meaning{Answer: NoAnswer, Evidence: Text}
		}
		m, code = m.worse(inner), cmp.Or(code, innerCode)
	}
	if m.Evidence == Stated {
		return m, code
	}
	var r response
	switch e := err.(type) { //nolint:errorlint // The causes are visited one by one.
	case interface{ GRPCStatus() *status.Status }:
		r = ofGRPC(e.GRPCStatus())
	case kerrors.APIStatus:
		r = ofAPIServer(e.Status())
	default:
		r = responseIn(err)
		code = cmp.Or(r.code, code)
		if r.status != 0 {
			r.code = code // The code of an error that it wraps belongs to its status.
		}
	}
	own := r.meaning(now)
	own.Answer = cmp.Or(own.Answer, ofNetwork(err, m))
	if own.Answer == Unsaid {
		return m, code
	}
	_, own.APIServer = err.(kerrors.APIStatus)
	own.Evidence = Typed
	return own, code
}

// worse returns what two errors mean that are joined.
func (m Meaning) worse(n Meaning) Meaning {
	if m.Evidence < n.Evidence {
		m, n = n, m
	}
	if m.Evidence == Stated && n.Evidence < Stated {
		return m
	}
	m.Answer = max(m.Answer, n.Answer)
	m.Exists = (m.Exists || n.Exists) && m.Answer <= Refused
	m.Throttled = m.Throttled || n.Throttled
	m.After = max(m.After, n.After)
	m.Terminal = m.Terminal || n.Terminal
	m.APIServer = m.APIServer || n.APIServer
	return m
}

// causes returns the errors that err itself wraps. They may be nil.
func causes(err error) []error {
	switch e := err.(type) { //nolint:errorlint // The caller visits errors one by one.
	case interface{ WrappedErrors() []error }: // go-multierror, whose Unwrap leaves out the first error.
		return e.WrappedErrors()
	case interface{ OrigErr() error }: // AWS's first SDK.
		return []error{e.OrigErr()}
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	case interface{ Errors() []error }: // Kubernetes' Aggregate.
		return e.Errors()
	}
	return []error{errors.Unwrap(err)}
}

// A statement is an error with the meaning that its author gave it.
type statement struct {
	error

	meaning Meaning
}

func (e *statement) Unwrap() error { return e.error }

// ErrNoAnswer is for authors to wrap. It says that the request may have been carried out.
var ErrNoAnswer = State(errors.New("the outcome of the operation is not known"), Meaning{Answer: NoAnswer})

// State returns err with a meaning, or nil if err is nil.
func State(err error, m Meaning) error {
	if err == nil {
		return nil
	}
	m.Evidence = Stated
	m.After = limited(m.After.Seconds())
	return &statement{error: err, meaning: m}
}

// maxAfter is the longest time that an external system may ask to wait.
const maxAfter = 24 * time.Hour

// limited returns a time to wait, from zero to maxAfter.
func limited(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 0), maxAfter.Seconds()) * float64(time.Second))
}
