package failure

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// typed returns the meaning of err itself, by its type, fields and methods.
func typed(err error, now time.Time) (m Meaning) {
	defer func() {
		if recover() != nil {
			m = Meaning{} // Methods of SDKs' errors may panic if there was no response.
		}
	}()
	switch e := err.(type) { //nolint:errorlint // The causes are visited one by one.
	case interface{ GRPCStatus() *status.Status }:
		m = ofGRPC(e.GRPCStatus())
	case kerrors.APIStatus:
		m = ofAPIServer(e.Status())
	default:
		m = responseIn(err).meaning(now)
	}
	if m.Answer == Unsaid && !m.Throttled {
		m.Answer = ofNetwork(err)
	}
	if m.Answer != Unsaid || m.Throttled {
		m.Evidence = Typed
	}
	return m
}

// ofStatus returns the meaning of an HTTP status. An error with the status of a success means that
// the client could not read the answer. 499 is nginx's for a client that has closed the connection.
func ofStatus(code int) Answer {
	switch {
	case code == http.StatusNotFound, code == http.StatusGone:
		return NotFound
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusProxyAuthRequired,
		code == http.StatusTooManyRequests:
		return Unserved
	case code/100 == 2, code/100 == 5, code == http.StatusRequestTimeout, code == 499:
		return NoAnswer
	case code/100 == 4:
		return Refused
	}
	return Unsaid
}

// ofGRPC returns the meaning of a gRPC status. Canceled, DeadlineExceeded, Unavailable and Internal
// are also the client's own statuses for a call without an answer. Unknown stands for the HTTP
// status 500 of a proxy.
func ofGRPC(s *status.Status) Meaning {
	switch s.Code() { //nolint:exhaustive // All others are refusals.
	case codes.OK:
		return Meaning{}
	case codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.Internal, codes.Unavailable, codes.DataLoss:
		return Meaning{Answer: NoAnswer}
	case codes.NotFound:
		return Meaning{Answer: NotFound}
	case codes.PermissionDenied, codes.Unauthenticated:
		return Meaning{Answer: Unserved}
	case codes.ResourceExhausted:
		// The answer to a successful call may be larger than the client accepts.
		if lostText.MatchString(s.Message()) {
			return Meaning{Answer: NoAnswer}
		}
		// Without RetryInfo it may as well be about a quota, which no waiting helps.
		m := Meaning{Answer: Unserved}
		for _, d := range s.Details() {
			if info, ok := d.(*errdetails.RetryInfo); ok {
				m.Throttled, m.After = true, min(max(info.GetRetryDelay().AsDuration(), 0), maxAfter)
			}
		}
		return m
	}
	return Meaning{Answer: Refused, Exists: s.Code() == codes.AlreadyExists}
}

// ofAPIServer returns the meaning of an answer of a Kubernetes API server.
func ofAPIServer(s metav1.Status) Meaning {
	m := Meaning{
		Answer: ofStatus(int(s.Code)), APIServer: true, Exists: s.Reason == metav1.StatusReasonAlreadyExists,
	}
	if m.Answer == Unsaid && s.Reason != metav1.StatusReasonUnknown {
		m.Answer = Refused
	}
	if s.Details != nil {
		m.After = limited(int64(s.Details.RetryAfterSeconds), time.Second)
	}
	m.Throttled = s.Code == http.StatusTooManyRequests || s.Code == http.StatusServiceUnavailable && m.After > 0
	return m
}

// A response is an answer of an HTTP API, as far as an error carries it.
type response struct {
	status int
	header http.Header
	code   string // the external system's own
	number int    // a field or method Code, which is an HTTP status in some SDKs only
}

// responseIn returns the response that err itself carries, with the code of an error that it wraps.
// SDKs have no common interface: those for AWS have methods, those for Azure, Google Cloud and GitHub
// fields.
func responseIn(err error) (r response) {
	switch e := err.(type) { //nolint:errorlint // The causes are visited one by one.
	case interface{ HTTPResponse() *http.Response }:
		r.takeFields(reflect.ValueOf(e.HTTPResponse()), 0)
	case interface{ HTTPStatusCode() int }:
		r.status = e.HTTPStatusCode()
	case interface{ GetHTTPStatusCode() int }:
		r.status = e.GetHTTPStatusCode()
	case interface{ GetStatusCode() int }:
		r.status = e.GetStatusCode()
	case interface{ StatusCode() int }:
		r.status = e.StatusCode()
	case interface{ HttpStatus() int }: // Alibaba Cloud's
		r.status = e.HttpStatus()
	case interface{ HTTPStatus() int }:
		r.status = e.HTTPStatus()
	case interface{ Status() int }: // Auth0's
		r.status = e.Status()
	case interface{ Code() int }:
		r.number = e.Code()
		if _, ok := err.(interface{ IsCode(code int) bool }); ok {
			r.status = r.number // Clients that go-swagger generates.
		}
	}
	r.takeFields(reflect.ValueOf(err), 0)
	if r.header != nil && r.status == 0 {
		r.status = r.number // Google Cloud's
	}
	if r.code == "" {
		r.code = codeIn(err, r.status != 0)
	}
	return r
}

// codeIn returns the code of err itself or, if deep, the first code of err and its causes. AWS's SDKs
// have them. A code belongs to the status of an error that wraps it.
func codeIn(err error, deep bool) string {
	switch e := err.(type) { //nolint:errorlint // The causes are visited one by one.
	case interface{ ErrorCode() string }:
		return e.ErrorCode()
	case interface{ Code() string }: // AWS's first SDK.
		return e.Code()
	}
	for _, cause := range causes(err) {
		if code := codeIn(cause, deep); deep && code != "" {
			return code
		}
	}
	return ""
}

// takeFields reads the fields of a struct, and of structs that are embedded in it or are a response.
func (r *response) takeFields(v reflect.Value, depth int) {
	const deepest = 3
	v = pointedTo(v)
	for i := 0; v.Kind() == reflect.Struct && depth <= deepest && i < v.NumField(); i++ {
		r.take(v.Type().Field(i), pointedTo(v.Field(i)), depth)
	}
}

// take reads a field. The first field of a kind counts that has a value.
func (r *response) take(field reflect.StructField, v reflect.Value, depth int) {
	switch name := field.Name; {
	case v.Kind() == reflect.Struct && (field.Anonymous || responseField.MatchString(name)):
		r.takeFields(v, depth+1)
	case !field.IsExported() || !v.IsValid():
	case v.Type() == reflect.TypeFor[http.Header]() && r.header == nil:
		r.header, _ = v.Interface().(http.Header)
	case statusField.MatchString(name) && r.status == 0:
		if n := numberIn(v); n >= 100 && n < 600 {
			r.status = n
		}
	case codeField.MatchString(name) && v.Kind() == reflect.String && r.code == "":
		r.code = v.String()
	case codeField.MatchString(name) && r.number == 0:
		r.number = numberIn(v)
	}
}

var (
	responseField = regexp.MustCompile(`Resp|^ServiceError$`)
	statusField   = regexp.MustCompile(`^(?:(?i:http)?Status(?:Code)?|(?i:http)?ResponseCode|(?i:http)Code|Actual)$`)
	codeField     = regexp.MustCompile(`^(?:Error)?Code$`)
)

// pointedTo returns the value that v has or points to. It may be invalid.
func pointedTo(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v
}

// numberIn returns a number, or the number that a text such as "503 Service Unavailable" begins with.
func numberIn(v reflect.Value) int {
	n := 0
	_, _ = fmt.Sscan(fmt.Sprint(v), &n)
	return n
}

// meaning of the response.
func (r response) meaning(now time.Time) Meaning {
	m := Meaning{Answer: ofStatus(r.status)}
	if m.Answer == Unsaid && (r.number/100 == 5 || failedCode.MatchString(r.code)) {
		// If it is an HTTP status, the request may have been carried out. A code of 4xx is no proof that
		// it was not.
		m.Answer = NoAnswer
	}
	after, said := retryAfter(r.header, now)
	switch {
	case r.status == http.StatusTooManyRequests, throttledCode.MatchString(r.code):
		m.Answer, m.Throttled, m.After = Unserved, true, after
	case said && (r.status == http.StatusForbidden || r.status == http.StatusServiceUnavailable):
		m.Throttled, m.After = true, after
	case m.Answer <= Refused && existsCode.MatchString(r.code):
		m.Answer, m.Exists = Refused, true
	case m.Answer == Refused && callerCode.MatchString(r.code):
		m.Answer = Unserved
	}
	return m
}

var (
	throttledCode = regexp.MustCompile(`^(?:Throttling|` + expression("throttled") + `)$`)
	callerCode    = regexp.MustCompile(`(?i)` + expression("caller"))
	existsCode    = regexp.MustCompile(expression("exists"))
	failedCode    = regexp.MustCompile(`(?i)` + expression("failed"))
	refusedCode   = regexp.MustCompile(`(?i)` + expression("refused"))
)

// ofNetwork returns the meaning of an error of Go's own packages. Nothing is sent before a connection
// is made, and before the certificate of the server is verified.
func ofNetwork(err error) Answer {
	lost := []error{
		context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
		syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, gzip.ErrHeader, gzip.ErrChecksum,
	}
	switch e := err.(type) { //nolint:errorlint // The causes are visited one by one.
	case *net.OpError:
		if e.Op != "dial" && e.Op != "proxyconnect" {
			return NoAnswer
		}
		return Unserved
	case *net.DNSError, *tls.CertificateVerificationError, tls.RecordHeaderError,
		x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		return Unserved
	case flate.CorruptInputError:
		return NoAnswer
	}
	if slices.Contains(lost, err) {
		return NoAnswer
	}
	return Unsaid
}

// wrapping returns what inner, the meaning of the errors that err wraps, means in err.
func wrapping(err error, inner Meaning) Meaning {
	m := Meaning{Evidence: Typed, Answer: NoAnswer}
	u, request := err.(*url.Error)                   //nolint:errorlint // It is about err itself.
	timeout, ok := err.(interface{ Timeout() bool }) // Some errors have only this method of net.Error.
	switch {
	case request && inner.Evidence == Typed && inner.Answer != NoAnswer:
		// net/http returns no error for an answer to the request. A server that issues tokens has sent it.
		m.Answer = Unserved
	case inner.Evidence == Typed, !request && (!ok || !timeout.Timeout()):
		if inner.Evidence == Typed && lostInText(causes(err)) {
			inner.Answer = NoAnswer
		}
		return inner
	case request && (u.Op == "parse" || u.Err == nil || unsentCause.MatchString(u.Err.Error())):
		m.Answer = Unserved
	}
	return m
}

// lostInText reports whether one of several errors that are joined has no type, and the text of a lost answer.
func lostInText(joined []error) bool {
	return len(joined) > 1 && slices.ContainsFunc(joined, func(err error) bool {
		at := func(err error) Meaning { return typed(err, time.Time{}) }
		return err != nil && walk(err, at, wrapping).Evidence == None && OfText(err.Error()).Answer == NoAnswer
	})
}

// retryAfter returns how long an answer asks the client to wait, and whether it asks at all. Azure's
// headers, which count milliseconds, take precedence because they are more precise.
func retryAfter(h http.Header, now time.Time) (after time.Duration, said bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	for _, key := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if n, ok := number(h.Get(key)); ok {
			return limited(n, time.Millisecond), true
		}
	}
	if n, ok := number(text); ok {
		return limited(n, time.Second), true
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxAfter), true
	}
	// GitHub's is a Unix time, and is also there if calls remain.
	none := h.Get("X-Ratelimit-Remaining") == "0"
	if n, ok := number(h.Get("X-Ratelimit-Reset")); ok && none {
		after = min(max(time.Unix(min(n, 1<<40), 0).Sub(now), 0), maxAfter)
	}
	return after, none
}

// number parses a non-negative number of a header.
func number(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n, n >= 0 && (err == nil || n > 0) // Too large a number becomes the largest int64.
}

// limited returns n units, from zero to maxAfter.
func limited(n int64, unit time.Duration) time.Duration {
	return time.Duration(min(max(n, 0), int64(maxAfter/unit))) * unit
}
