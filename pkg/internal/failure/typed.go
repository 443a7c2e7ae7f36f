package failure

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

// statusNamed returns the HTTP status that has this name, or that means the same as a gRPC status or an external
// system's own code of this name, or zero. Names that may be those of a lost answer come first.
func statusNamed(name string) int {
	for status := http.StatusNetworkAuthenticationRequired; name != "" && status >= http.StatusBadRequest; status-- {
		if http.StatusText(status) == name || matches(strconv.Itoa(status), name) {
			return status
		}
	}
	return 0
}

// A response is an answer of an external system, as far as an error carries it.
type response struct {
	status int // HTTP's
	header http.Header
	code   string // the external system's own
	number int    // a field or method Code, which is an HTTP status in some SDKs only
}

// meaning returns what the response says.
func (r response) meaning(now time.Time) Meaning {
	m := Meaning{Answer: ofStatus(r.status)}
	seconds := retryAfter(r.header, now)
	switch {
	case r.status == http.StatusTooManyRequests, matches("throttled code", r.code):
		m.Answer, m.Throttled, m.After = Unserved, true, limited(seconds)
	case seconds >= 0 && (r.status == http.StatusForbidden || r.status == http.StatusServiceUnavailable):
		m.Throttled, m.After = true, limited(seconds)
	case m.Answer == Unsaid && (r.number/100 == 5 || matches("failed", r.code)):
		// If it is an HTTP status, the request may have been carried out. A code of 4xx is no proof that
		// it was not.
		m.Answer = NoAnswer
	case m.Answer <= Refused && matches("exists", r.code):
		m.Answer, m.Exists = Refused, true
	case m.Answer == Refused && matches("caller", r.code):
		m.Answer = Unserved
	}
	return m
}

// ofGRPC returns a gRPC status as a response.
func ofGRPC(s *status.Status) response {
	r := response{code: s.Code().String()}
	r.status, _ = statusIn(s.String())
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && r.code == "ResourceExhausted" {
			r.header = http.Header{"Retry-After": {fmt.Sprint(info.GetRetryDelay().AsDuration().Seconds())}}
		}
	}
	return r
}

// ofAPIServer returns the answer of a Kubernetes API server as a response.
func ofAPIServer(s metav1.Status) response {
	r := response{status: cmp.Or(int(s.Code), statusNamed(string(s.Reason))), code: string(s.Reason)}
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		r.header = http.Header{"Retry-After": {fmt.Sprint(s.Details.RetryAfterSeconds)}}
	}
	return r
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
	r.status = cmp.Or(r.status, statusNamed(grammar()["rpc code"].FindString(r.code))) // Connect's and Twirp's.
	return r
}

// take reads a field, or the result of a method. The first one of a kind counts that has a value. Of what is embedded,
// or is a response, it reads the fields.
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
	case v.Type() == reflect.TypeFor[map[string]any]() && matches("response field", name):
		for _, key := range slices.Sorted(maps.Keys(v.Interface().(map[string]any))) { //nolint:errcheck // Checked.
			r.take(key, v.MapIndex(reflect.ValueOf(key)), depth+1)
		}
	case v.Type() == reflect.TypeFor[http.Header]() && r.header == nil:
		r.header, _ = v.Interface().(http.Header)
	case matches("status field", name) && r.status == 0 && numberIn(v) >= 100 && numberIn(v) < 600:
		r.status = numberIn(v)
	case name == "Errors" && v.Kind() == reflect.Slice && v.Len() > 0 && v.Type().Elem().Kind() == reflect.Struct:
		r.take("Code", v.Index(0).FieldByName("Reason"), depth+1) // Google Cloud's.
	case matches("code field", name) && v.Kind() == reflect.String && r.code == "":
		r.code = v.String()
	case matches("code field", name) && numberIn(v) != 0:
		r.number = cmp.Or(r.number, numberIn(v))
	case matches("code field", name) && r.code == "" && !v.IsZero():
		r.code = fmt.Sprint(v) // The type of the number has a method String.
	}
}

// numberIn returns a number, or the number that a text such as "503 Service Unavailable" begins with.
func numberIn(v reflect.Value) (n int) {
	_, _ = fmt.Sscan(fmt.Sprint(v), &n)
	return n
}

// ofNetwork returns the answer of an error of Go's own packages. inner is the meaning of its causes. Nothing is sent
// before a connection is made, and before the certificate of the server is verified.
func ofNetwork(err error, inner Meaning) Answer {
	unsent := matches("unsent error", err.Error())
	switch err.(type) { //nolint:errorlint // The causes are visited one by one.
	case *url.Error:
		// Package net/http returns none for an answer to the request: a server that issues tokens has sent it.
		unsent = unsent || inner.Evidence == Typed && inner.Answer != NoAnswer
	case *net.OpError, *net.DNSError:
	default:
		timeout, ok := err.(interface{ Timeout() bool }) // Some errors have only this method of net.Error.
		lost := ok && timeout.Timeout() || matches("lost error", err.Error())
		if !lost || inner.Evidence == Typed {
			return Unsaid
		}
	}
	if unsent {
		return Unserved
	}
	return NoAnswer
}

// retryAfter returns how many seconds an answer asks the client to wait, or -1. Headers that count milliseconds are
// Azure's. GitHub's time is a Unix time, and is also there if calls remain.
func retryAfter(h http.Header, now time.Time) float64 {
	number := func(key string) float64 {
		if n, err := strconv.ParseFloat(strings.TrimSpace(h.Get(key)), 64); err == nil && n >= 0 {
			return n
		}
		return -1
	}
	millis, seconds := max(number("Retry-After-Ms"), number("X-Ms-Retry-After-Ms")), number("Retry-After")
	at, err := http.ParseTime(strings.TrimSpace(h.Get("Retry-After")))
	switch {
	case millis >= 0:
		return millis / 1000
	case err == nil:
		return max(0, at.Sub(now).Seconds())
	case seconds < 0 && h.Get("X-Ratelimit-Remaining") == "0":
		return max(0, number("X-Ratelimit-Reset")-float64(now.Unix()))
	}
	return seconds
}
