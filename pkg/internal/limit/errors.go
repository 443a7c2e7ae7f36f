package limit

import "time"

// throttled is an error of a call that the external system throttled.
type throttled struct {
	error

	after time.Duration
}

func (e *throttled) Unwrap() error { return e.error }

// terminal is an error that the same call returns until its managed resource changes.
type terminal struct{ error }

func (e *terminal) Unwrap() error { return e.error }

// Throttled marks err as the answer of an external system that throttles its callers. The
// next call may be made when after has passed; zero means that the answer gave no time.
// Throttled returns nil if err is nil.
func Throttled(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &throttled{error: err, after: after}
}

// Terminal marks err as an error that the same call returns again. It returns nil if err is
// nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminal{error: err}
}

// IsMark reports whether err itself, not an error that it wraps, is one of Throttled or
// Terminal.
func IsMark(err error) bool {
	switch err.(type) { //nolint:errorlint // It is about err itself.
	case *throttled, *terminal:
		return true
	default:
		return false
	}
}

// A Verdict is the meaning of an error for the next call.
type Verdict struct {
	// Throttled reports whether the external system throttled the call. After is how long to
	// wait; zero means that the answer gave no time.
	Throttled bool
	After     time.Duration

	// Terminal reports whether the same call returns the same error again.
	Terminal bool

	// Refused reports whether the external system has certainly not carried out the call.
	// The text of an error is no proof, because it may be about a later call.
	Refused bool
}

// Judge an error. The outermost mark of Throttled or Terminal decides. Without one, the
// answers of external systems that throttle are recognised:
//
//   - HTTP 429, and HTTP 503 with Retry-After;
//   - gRPC ResourceExhausted with RetryInfo;
//   - the codes with which AWS and Azure throttle.
//
// If no error carries an answer, they are looked for in the text. The text counts only then,
// because it may quote a field that a user has set.
func Judge(err error, now time.Time) Verdict {
	if err == nil {
		return Verdict{}
	}
	if v, ok := marked(err); ok {
		return v
	}
	var v Verdict
	answered := false
	walk(err, func(err error) bool {
		w, ok := judge(err, now)
		v, answered = v.merge(w), answered || ok
		return true
	})
	switch {
	case v.Throttled && v.After == 0:
		v.After = afterByText(err.Error())
	case !v.Throttled && !answered:
		v = byText(err.Error())
	}
	return v
}

// marked returns the verdict of the outermost mark.
func marked(err error) (v Verdict, found bool) {
	walk(err, func(err error) bool {
		switch e := err.(type) { //nolint:errorlint // The errors are visited one by one.
		case *throttled:
			v, found = Verdict{Throttled: true, After: max(e.after, 0), Refused: true}, true
		case *terminal:
			v, found = Verdict{Terminal: true, Refused: true}, true
		}
		return !found
	})
	return v, found
}

// merge combines the verdicts of two errors that are joined, or that wrap each other.
func (v Verdict) merge(w Verdict) Verdict {
	return Verdict{
		Throttled: v.Throttled || w.Throttled,
		After:     max(v.After, w.After),
		Refused:   v.Refused || w.Refused,
	}
}

// walk visits err and all errors that it wraps, outer ones first, until visit returns false.
func walk(err error, visit func(err error) bool) bool {
	if err == nil {
		return true
	}
	if !visit(err) {
		return false
	}
	for _, cause := range Causes(err) {
		if !walk(cause, visit) {
			return false
		}
	}
	return true
}

// Causes returns the errors that err itself wraps. They may be nil.
func Causes(err error) []error {
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
