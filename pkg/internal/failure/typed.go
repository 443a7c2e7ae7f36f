package failure

import (
	"cmp"
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

// typed returns the reading of err itself, by its type, fields and methods. inner is the one of its causes, which
// counts if err itself says nothing.
func typed(err error, inner reading, now time.Time) (r reading) {
	defer func() {
		if recover() != nil {
			r = inner // Methods of SDKs' errors may panic if there was no response.
		}
	}()
	switch e := err.(type) { //nolint:errorlint // The causes are visited one by one.
	case interface{ GRPCStatus() *status.Status }:
		r.Meaning = ofGRPC(e.GRPCStatus())
	case kerrors.APIStatus:
		r.Meaning = ofAPIServer(err, e.Status())
	default:
		r = responseIn(err).reading(inner.code, now)
	}
	if r.Answer == Unsaid {
		r.Answer = ofNetwork(err, inner.Meaning)
	}
	if r.Answer == Unsaid {
		return reading{Meaning: inner.Meaning, code: r.code}
	}
	r.Evidence = Typed
	return r
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

// ofGRPC returns the meaning of a gRPC status. Without RetryInfo, ResourceExhausted may as well be about a
// quota, which no waiting helps.
func ofGRPC(s *status.Status) Meaning {
	m := Meaning{Answer: ofCode(s.Code(), s.Message()), Exists: s.Code() == codes.AlreadyExists}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && s.Code() == codes.ResourceExhausted {
			m.Throttled, m.After = true, limited(info.GetRetryDelay().AsDuration().Seconds(), time.Second)
		}
	}
	return m
}

// ofCode returns the answer of a gRPC status. Canceled, DeadlineExceeded, Unavailable and Internal are also
// the client's own statuses for a call without an answer. Unknown stands for the HTTP status 500 of a proxy.
func ofCode(code codes.Code, message string) Answer {
	switch code { //nolint:exhaustive // All others are refusals.
	case codes.OK:
		return Unsaid
	case codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.Internal, codes.Unavailable, codes.DataLoss:
		return NoAnswer
	case codes.NotFound:
		return NotFound
	case codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted:
		if code == codes.ResourceExhausted && matches("lost", message) {
			return NoAnswer // The answer to a successful call may be larger than the client accepts.
		}
		return Unserved
	}
	return Refused
}

// ofAPIServer returns the meaning of an answer of a Kubernetes API server.
func ofAPIServer(err error, s metav1.Status) Meaning {
	m := Meaning{Answer: ofStatus(int(s.Code)), APIServer: true, Exists: kerrors.IsAlreadyExists(err)}
	if m.Answer == Unsaid && s.Reason != metav1.StatusReasonUnknown {
		m.Answer = Refused
	}
	seconds, _ := kerrors.SuggestsClientDelay(err)
	m.After = limited(float64(seconds), time.Second)
	m.Throttled = kerrors.IsTooManyRequests(err) || s.Code == http.StatusServiceUnavailable && seconds > 0
	return m
}

// A response is an answer of an HTTP API, as far as an error carries it.
type response struct {
	status int
	header http.Header
	code   string // the external system's own
	number int    // a field or method Code, which is an HTTP status in some SDKs only
}

// responseIn returns the response that err itself carries. SDKs have no common interface: those for AWS have
// methods, those for Azure, Google Cloud and GitHub fields.
func responseIn(err error) (r response) {
	v := reflect.ValueOf(err)
	for i := range v.NumMethod() {
		m := v.Method(i).Type()
		if name := v.Type().Method(i).Name; matches("method", name) && m.NumIn() == 0 && m.NumOut() == 1 {
			r.take(strings.TrimPrefix(name, "Get"), v.Method(i).Call(nil)[0], 0)
		}
	}
	r.take("Response", v, 0)
	if _, swagger := err.(interface{ IsCode(code int) bool }); r.status == 0 && (swagger || r.header != nil) {
		r.status = r.number // Clients that go-swagger generates, and Google Cloud's.
	}
	return r
}

// take reads a field, or the result of a method. The first one of a kind counts that has a value. Of structs that are
// embedded, or are a response, it reads the fields.
func (r *response) take(name string, v reflect.Value, depth int) {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	const deepest = 4
	switch {
	case !v.IsValid() || depth > deepest:
	case v.Kind() == reflect.Struct && matches("response field", name):
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Anonymous {
				r.take("embedded "+f.Name, v.Field(i), depth+1)
			} else if f.IsExported() {
				r.take(f.Name, v.Field(i), depth+1)
			}
		}
	case v.Type() == reflect.TypeFor[http.Header]() && r.header == nil:
		r.header, _ = v.Interface().(http.Header)
	case matches("status field", name) && r.status == 0:
		if n := numberIn(v); n >= 100 && n < 600 {
			r.status = n
		}
	case matches("code field", name) && v.Kind() == reflect.String && r.code == "":
		r.code = v.String()
	case matches("code field", name) && r.number == 0:
		r.number = numberIn(v)
	}
}

// numberIn returns a number, or the number that a text such as "503 Service Unavailable" begins with.
func numberIn(v reflect.Value) int {
	n := 0
	_, _ = fmt.Sscan(fmt.Sprint(v), &n)
	return n
}

// reading returns what the response says. The code of an error that it wraps belongs to its status.
func (r response) reading(inner string, now time.Time) reading {
	code := cmp.Or(r.code, inner)
	if r.status != 0 {
		r.code = code
	}
	m := Meaning{Answer: ofStatus(r.status)}
	if m.Answer == Unsaid && (r.number/100 == 5 || matches("failed", r.code)) {
		// If it is an HTTP status, the request may have been carried out. A code of 4xx is no proof that
		// it was not.
		m.Answer = NoAnswer
	}
	after, said := retryAfter(r.header, now)
	switch {
	case r.status == http.StatusTooManyRequests, matches("throttled code", r.code):
		m.Answer, m.Throttled, m.After = Unserved, true, after
	case said && (r.status == http.StatusForbidden || r.status == http.StatusServiceUnavailable):
		m.Throttled, m.After = true, after
	case m.Answer <= Refused && matches("exists", r.code):
		m.Answer, m.Exists = Refused, true
	case m.Answer == Refused && matches("caller", r.code):
		m.Answer = Unserved
	}
	return reading{Meaning: m, code: code}
}

// ofNetwork returns the meaning of an error of Go's own packages. inner is the one of its causes. Nothing is sent
// before a connection is made, and before the certificate of the server is verified.
func ofNetwork(err error, inner Meaning) Answer {
	lost := []error{
		context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
		syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, gzip.ErrHeader, gzip.ErrChecksum,
	}
	timeout, ok := err.(interface{ Timeout() bool }) // Some errors have only this method of net.Error.
	unsent := false
	switch e := err.(type) { //nolint:errorlint // The causes are visited one by one.
	case *net.OpError:
		unsent = e.Op == "dial" || e.Op == "proxyconnect"
	case *net.DNSError, *tls.CertificateVerificationError, tls.RecordHeaderError,
		x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		unsent = true
	case *url.Error:
		// Package net/http returns none for an answer to the request: a server that issues tokens has sent it.
		unsent = inner.Evidence == Typed && inner.Answer != NoAnswer || e.Op == "parse" ||
			matches("unsent cause", e.Err.Error())
	case flate.CorruptInputError:
	default:
		if !slices.Contains(lost, err) && (inner.Evidence == Typed || !ok || !timeout.Timeout()) {
			return Unsaid
		}
	}
	if unsent {
		return Unserved
	}
	return NoAnswer
}

// retryAfter returns how long an answer asks the client to wait, and whether it asks at all. Headers that count
// milliseconds are Azure's.
func retryAfter(h http.Header, now time.Time) (after time.Duration, said bool) {
	for _, header := range []struct {
		key  string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"X-Ms-Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		if n, err := strconv.ParseFloat(strings.TrimSpace(h.Get(header.key)), 64); err == nil && n >= 0 {
			return limited(n, header.unit), true
		}
	}
	if at, err := http.ParseTime(strings.TrimSpace(h.Get("Retry-After"))); err == nil {
		return limited(at.Sub(now).Seconds(), time.Second), true
	}
	if h.Get("X-Ratelimit-Remaining") != "0" {
		return 0, false
	}
	// GitHub's time is a Unix time, and is also there if calls remain.
	reset, _ := strconv.ParseFloat(h.Get("X-Ratelimit-Reset"), 64)
	return limited(reset-float64(now.Unix()), time.Second), true
}

// limited returns n units, from zero to maxAfter.
func limited(n float64, unit time.Duration) time.Duration {
	if n > 0 {
		return time.Duration(min(n*float64(unit), float64(maxAfter)))
	}
	return 0
}
