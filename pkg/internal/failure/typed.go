package failure

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// typed returns the meaning of err itself, by its type, fields and methods.
func typed(err error, now time.Time) (m Meaning) {
	v := reflect.ValueOf(err)
	defer func() {
		if p := recover(); p != nil {
			m = Meaning{} // Methods of SDKs' errors may panic if there was no response.
		}
	}()
	switch e := err.(type) { //nolint:errorlint // The causes are visited one by one.
	case interface{ GRPCStatus() *status.Status }:
		m = ofGRPC(e.GRPCStatus())
	case kerrors.APIStatus:
		m = ofAPIServer(e.Status())
	default:
		if v.Kind() == reflect.Pointer && v.IsNil() {
			return Meaning{}
		}
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
		if strings.Contains(s.Message(), "received message") && strings.Contains(s.Message(), "larger than max") {
			return Meaning{Answer: NoAnswer}
		}
		// Without RetryInfo it may as well be about a quota, which no waiting helps.
		after, throttled := retryInfo(s)
		return Meaning{Answer: Unserved, Throttled: throttled, After: after}
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

// ofStatus returns the meaning of an HTTP status. An error with the status of a success means that
// the client could not read the answer.
func ofStatus(code int) Answer {
	const clientClosedRequest = 499 // nginx
	switch {
	case code == http.StatusNotFound, code == http.StatusGone:
		return NotFound
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusProxyAuthRequired,
		code == http.StatusTooManyRequests:
		return Unserved
	case code/100 == 2, code/100 == 5, code == http.StatusRequestTimeout, code == clientClosedRequest:
		return NoAnswer
	case code/100 == 4:
		return Refused
	}
	return Unsaid
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
		r.take("", reflect.ValueOf(e.HTTPResponse()), 0)
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
	case interface{ Code() int }:
		r.number = e.Code()
		if _, ok := err.(interface{ IsCode(code int) bool }); ok {
			r.status = r.number // Clients that go-swagger generates.
		}
	}
	r.takeFields(reflect.Indirect(reflect.ValueOf(err)), 0)
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
		if !deep {
			break
		}
		if code := codeIn(cause, deep); code != "" {
			return code
		}
	}
	return ""
}

// takeFields reads the exported fields of a struct, and of structs in it.
func (r *response) takeFields(v reflect.Value, depth int) {
	const deepest = 3
	for i := 0; v.Kind() == reflect.Struct && depth <= deepest && i < v.NumField(); i++ {
		if t := v.Type().Field(i); t.IsExported() {
			name := t.Name
			if t.Anonymous {
				name = ""
			}
			r.take(name, v.Field(i), depth)
		}
	}
}

// take reads a field, whose name is empty if it is embedded. A response takes precedence over fields
// that repeat its status.
func (r *response) take(name string, v reflect.Value, depth int) {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if !v.IsValid() {
		return
	}
	if h, ok := v.Interface().(*http.Response); ok && h != nil {
		r.status, r.header = h.StatusCode, h.Header
		return
	}
	if h, ok := v.Interface().(http.Header); ok && r.header == nil {
		r.header = h
		return
	}
	v = reflect.Indirect(v)
	number := 0
	if v.IsValid() && v.CanInt() {
		number = int(v.Int())
	}
	switch name {
	case "StatusCode", "HTTPStatusCode", "HTTPCode", "Status", "Actual":
		if r.status == 0 && number >= 100 && number < 600 {
			r.status = number
		}
	case "Code", "ErrorCode":
		if r.number == 0 {
			r.number = number
		}
		if r.code == "" && v.Kind() == reflect.String {
			r.code = v.String()
		}
	case "", "Response", "HTTPResponse", "ServiceError":
		r.takeFields(v, depth+1)
	}
}

// meaning of the response.
func (r response) meaning(now time.Time) Meaning {
	m := Meaning{Answer: ofStatus(r.status)}
	if m.Answer == Unsaid && r.number/100 == 5 {
		// If it is an HTTP status, the request may have been carried out. A code of 4xx is no proof that
		// it was not.
		m.Answer = NoAnswer
	}
	after, said := retryAfter(r.header, now)
	switch {
	case r.status == http.StatusTooManyRequests, throttleCode.MatchString(r.code):
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

// wrapping returns what causes, the meaning of the errors that err wraps, means in err.
func wrapping(err error, causes Meaning) Meaning {
	m := Meaning{Evidence: Typed, Answer: NoAnswer}
	u, request := err.(*url.Error)                   //nolint:errorlint // It is about err itself.
	timeout, ok := err.(interface{ Timeout() bool }) // Some errors have only this method of net.Error.
	switch {
	case request && causes.Evidence == Typed && causes.Answer != NoAnswer:
		// net/http returns no error for an answer to the request. A server that issues tokens has sent it.
		m.Answer = Unserved
	case causes.Evidence == Typed, !request && (!ok || !timeout.Timeout()):
		return causes
	case request && (u.Op == "parse" || u.Err == nil || unsentCause.MatchString(u.Err.Error())):
		m.Answer = Unserved
	}
	return m
}

// throttleCodes are the codes that AWS, Azure and Google Cloud throttle with. Left out are codes that
// are also about quotas: LimitExceeded, OperationNotAllowed.
const throttleCodes = `(?:` +
	`Throttling\.\w+|ThrottlingException|ThrottledException|EC2ThrottledException|RequestThrottled(?:Exception)?|` +
	`RequestLimitExceeded|TooManyRequestsException|ProvisionedThroughputExceededException|BandwidthLimitExceeded|SlowDown|` +
	`(?:Subscription|Tenant|Resource|ResourceCollection)?Requests?Throttled|TooManyRequests(?:Received)?|` +
	`(?:Server|Account|Operation)(?:Busy|Throttled)|RateLimiting|` +
	`(?:[Uu]ser)?[Rr]ateLimitExceeded|RATE_LIMIT_EXCEEDED|rate_limit_exceeded)`

// callerCodes are AWS's codes for refused credentials and for "not found". Their HTTP status may be 400.
const callerCodes = `expired|accessdenied|(un|not)authorized|authfailure|unrecognizedclient|` +
	`invalid(client|identity)?token|invalidaccesskey|invalidgrant|missingauthenticationtoken|` +
	`signaturedoesnotmatch|invalidsignature|incompletesignature|idpcommunicationerror|` +
	`not_?found|nosuch|(does|did)notexist`

var (
	throttleCode = regexp.MustCompile(`^(?:Throttling|` + throttleCodes + `)$`)
	callerCode   = regexp.MustCompile(`(?i)` + callerCodes)
	existsCode   = regexp.MustCompile(`(?i)already_?(exist|owned)`) // such as BucketAlreadyOwnedByYou
)
