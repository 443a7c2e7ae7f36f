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
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
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
	m := readTypes(err, now).Meaning
	if m.Evidence == Stated {
		return m
	}
	switch text := err.Error(); {
	case m.Evidence == None:
		return OfText(text)
	case matches("login", text):
		if m.Answer == Refused || m.Answer == NotFound {
			m.Answer = Unserved
		}
	case m.Answer == Refused:
		m.Exists = m.Exists || OfText(text).Exists // Google Cloud's code is in the text only.
	case m.Answer == Unserved && !m.Throttled && matches("attempts", text):
		m.Answer = NoAnswer // The last request was not sent, but an earlier one may have been.
	case strings.Contains(text, "Future#WaitForCompletion"):
		m.Answer = NoAnswer // Azure has accepted the request.
	}
	return m
}

// Lost reports whether the request that err ended may have been carried out.
func Lost(err error) bool { return err != nil && Of(err, time.Time{}).Answer == NoAnswer }

// StatedLost reports whether the author says that the request may have been carried out.
func StatedLost(err error) bool {
	m := Of(err, time.Time{})
	return m.Evidence == Stated && m.Answer == NoAnswer
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

// A reading is what an error and its causes say without their texts.
type reading struct {
	Meaning

	code string // the external system's own, of the outermost error that has one
}

// readTypes returns the meaning of err by statements and types. The causes count if err itself says nothing.
func readTypes(err error, now time.Time) reading {
	if s, ok := err.(*statement); ok { //nolint:errorlint // The causes are visited one by one.
		return reading{Meaning: s.meaning}
	}
	var inner reading
	var untyped []error
	for _, cause := range causes(err) {
		if cause == nil {
			continue
		}
		r := readTypes(cause, now)
		if r.Evidence == None {
			untyped = append(untyped, cause)
		}
		inner = reading{Meaning: inner.worse(r.Meaning), code: cmp.Or(inner.code, r.code)}
	}
	lost := func(err error) bool { return OfText(err.Error()).Answer == NoAnswer }
	switch {
	case inner.Evidence == Stated:
		return inner
	case inner.Evidence == Typed && slices.ContainsFunc(untyped, lost):
		inner.Meaning = inner.worse(Meaning{Answer: NoAnswer}) // It was joined with one that has only a text.
	}
	return typed(err, inner, now)
}

// worse returns what two errors mean that are joined.
func (m Meaning) worse(n Meaning) Meaning {
	if m.Evidence < n.Evidence {
		m, n = n, m
	}
	if m.Evidence == Stated && n.Evidence < Stated {
		return m
	}
	return Meaning{
		Answer:    max(m.Answer, n.Answer),
		Evidence:  max(m.Evidence, n.Evidence),
		Exists:    m.Exists && n.Answer <= Refused || n.Exists && m.Answer <= Refused,
		Throttled: m.Throttled || n.Throttled,
		After:     max(m.After, n.After),
		Terminal:  m.Terminal || n.Terminal,
		APIServer: m.APIServer || n.APIServer,
	}
}

// causes returns the errors that err itself wraps. They may be nil.
func causes(err error) []error {
	switch e := err.(type) { //nolint:errorlint // The caller visits errors one by one.
	case interface{ WrappedErrors() []error }: // go-multierror, whose Unwrap leaves out the first error.
		return e.WrappedErrors()
	case interface{ Unwrap() error }:
		return []error{e.Unwrap()}
	case interface{ OrigErr() error }: // AWS's first SDK.
		return []error{e.OrigErr()}
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	case interface{ Errors() []error }: // Kubernetes' Aggregate.
		return e.Errors()
	}
	return nil
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
	m.After = min(max(m.After, 0), maxAfter)
	return &statement{error: err, meaning: m}
}

// maxAfter is the longest time that an external system may ask to wait.
const maxAfter = 24 * time.Hour
