package limit

import (
	"encoding/binary"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// judge one error by the answer of the external system that it carries. It reports whether the
// error carries one that says anything.
func judge(err error, now time.Time) (v Verdict, answered bool) {
	if isNil(err) {
		return Verdict{}, false
	}
	defer func() {
		// Methods of SDKs' errors may panic if there was no response.
		if p := recover(); p != nil {
			v, answered = Verdict{}, false
		}
	}()
	if s, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		is := s.GRPCStatus()
		code := is.Code() // OK without a status.
		return byGRPC(is), code != codes.OK && code != codes.Unknown
	}
	if s, ok := err.(kerrors.APIStatus); ok {
		return byAPIStatus(s), s.Status().Code != 0 || s.Status().Reason != metav1.StatusReasonUnknown
	}

	a := answerOf(err)
	answered = a.status >= http.StatusBadRequest || a.code != ""
	after, said := retryAfter(a.header, now)
	switch {
	case a.status == http.StatusTooManyRequests, isThrottleCode(a.code):
		return Verdict{Throttled: true, After: after, Refused: true}, answered
	case a.status == http.StatusServiceUnavailable && said:
		return Verdict{Throttled: true, After: after}, answered
	}
	return Verdict{}, answered
}

// byGRPC judges a gRPC status. Without RetryInfo, ResourceExhausted may as well be about a
// quota, which no waiting helps.
func byGRPC(s *status.Status) Verdict {
	if s == nil || s.Code() != codes.ResourceExhausted {
		return Verdict{}
	}
	for _, d := range s.Proto().GetDetails() {
		if strings.HasSuffix(d.GetTypeUrl(), "/google.rpc.RetryInfo") {
			return Verdict{Throttled: true, After: retryDelay(d.GetValue()), Refused: true}
		}
	}
	return Verdict{}
}

// retryDelay decodes the field retry_delay of a google.rpc.RetryInfo. The package with the
// Go type is not linked by providers in general.
func retryDelay(retryInfo []byte) time.Duration {
	seconds, nanos := int64(0), int64(0)
	fields(retryInfo, func(field uint64, _ uint64, message []byte) {
		if field != 1 {
			return
		}
		fields(message, func(field, v uint64, _ []byte) {
			switch field {
			case 1:
				seconds = int64(v) //nolint:gosec // Protobuf encodes signed numbers so.
			case 2:
				nanos = int64(v) //nolint:gosec // As above.
			}
		})
	})
	seconds = min(max(seconds, 0), int64(maxClosed/time.Second))
	nanos = min(max(nanos, 0), int64(time.Second))
	return time.Duration(seconds)*time.Second + time.Duration(nanos)
}

// fields calls visit for each field of a protobuf message that is a varint or has a length.
// It stops at the first field that it cannot decode.
func fields(message []byte, visit func(field, number uint64, bytes []byte)) {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return
		}
		message = message[n:]
		v, n := binary.Uvarint(message)
		if n <= 0 {
			return
		}
		message = message[n:]

		const number, length = 0, 2
		switch tag & 7 {
		case number:
			visit(tag>>3, v, nil)
		case length:
			if v > uint64(len(message)) {
				return
			}
			visit(tag>>3, 0, message[:v])
			message = message[v:]
		default:
			return
		}
	}
}

// byAPIStatus judges the answer of a Kubernetes API server.
func byAPIStatus(s kerrors.APIStatus) Verdict {
	st := s.Status()
	after := time.Duration(0)
	if st.Details != nil {
		after = time.Duration(min(max(st.Details.RetryAfterSeconds, 0), int32(maxClosed/time.Second))) * time.Second
	}
	switch {
	case st.Code == http.StatusTooManyRequests:
		return Verdict{Throttled: true, After: after, Refused: true}
	case st.Code == http.StatusServiceUnavailable && after > 0:
		return Verdict{Throttled: true, After: after}
	}
	return Verdict{}
}

// An answer is an HTTP response, as far as an error carries it.
type answer struct {
	status int
	header http.Header
	code   string // the external system's own
}

// answerOf returns the answer that err itself carries. SDKs have no common interface for it:
// most have the response in a field, and those for AWS a response that embeds net/http's.
func answerOf(err error) answer {
	var a answer
	a.code, _ = codeOf(err)
	switch e := err.(type) { //nolint:errorlint // The errors are visited one by one.
	case interface{ HTTPResponse() *http.Response }:
		a.take(e.HTTPResponse())
	case interface{ HTTPStatusCode() int }:
		a.status = e.HTTPStatusCode()
	case interface{ GetHTTPStatusCode() int }:
		a.status = e.GetHTTPStatusCode()
	case interface{ GetStatusCode() int }:
		a.status = e.GetStatusCode()
	case interface{ StatusCode() int }:
		a.status = e.StatusCode()
	}
	a.takeFields(reflect.Indirect(reflect.ValueOf(err)), 0)
	return a
}

// codeOf returns the code of the external system that a method of err itself returns, and whether
// it has one. AWS's SDKs have.
func codeOf(err error) (code string, ok bool) {
	switch e := err.(type) { //nolint:errorlint // The errors are visited one by one.
	case interface{ ErrorCode() string }:
		return e.ErrorCode(), true
	case interface{ Code() string }: // AWS's first SDK.
		return e.Code(), true
	}
	return "", false
}

// Code returns the first code of err and its causes, or "".
func Code(err error) (code string) {
	walk(err, func(err error) bool {
		var found bool
		code, found = codeOf(err)
		return !found
	})
	return code
}

func (a *answer) take(r *http.Response) {
	if r != nil {
		a.status, a.header = r.StatusCode, r.Header
	}
}

// takeFields reads the response, the status and the header from the exported fields of a
// struct, and from nested structs. A response takes precedence over fields that repeat its
// status.
func (a *answer) takeFields(v reflect.Value, depth int) {
	const deepest = 3
	if v.Kind() != reflect.Struct || depth > deepest {
		return
	}

	for i := range v.NumField() {
		t, f := v.Type().Field(i), v.Field(i)
		if !t.IsExported() {
			continue
		}
		switch field := f.Interface().(type) {
		case *http.Response:
			a.take(field)
			continue
		case http.Header:
			if a.header == nil {
				a.header = field
			}
			continue
		}

		n := reflect.Indirect(f)
		switch t.Name {
		case "StatusCode", "HTTPStatusCode", "Code", "Status", "Actual":
			// Other numbers are codes of the external system, not HTTP statuses.
			if a.status == 0 && n.IsValid() && n.CanInt() && n.Int() >= 100 && n.Int() < 600 {
				a.status = int(n.Int())
			}
		}
		if (t.Name == "ErrorCode" || t.Name == "Code") && a.code == "" && n.Kind() == reflect.String {
			a.code = n.String()
		}
		if t.Anonymous || t.Name == "Response" || t.Name == "HTTPResponse" || t.Name == "ServiceError" {
			if f.Kind() == reflect.Interface {
				f = f.Elem()
			}
			a.takeFields(reflect.Indirect(f), depth+1)
		}
	}
}

// isNil reports whether err is a nil pointer, whose methods may panic.
func isNil(err error) bool {
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// retryAfter returns how long the answer asks the client to wait, and whether it asks at all.
// Azure's headers, which count milliseconds, take precedence because they are more precise.
func retryAfter(h http.Header, now time.Time) (after time.Duration, said bool) {
	for _, key := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if n, ok := number(h.Get(key)); ok {
			return duration(n, time.Millisecond), true
		}
	}
	text := strings.TrimSpace(h.Get("Retry-After"))
	if n, ok := number(text); ok {
		return duration(n, time.Second), true
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxClosed), true
	}
	return 0, false
}

// number parses a non-negative number of a header. A number that is too large becomes the
// largest int64.
func number(text string) (n int64, ok bool) {
	text = strings.TrimSpace(text)
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}

func duration(n int64, unit time.Duration) time.Duration {
	return time.Duration(min(n, int64(maxClosed/unit))) * unit
}

// isThrottleCode reports whether an external system's own code means that it throttles.
func isThrottleCode(code string) bool {
	return code == "Throttling" || throttleCode.MatchString(code)
}

// byText judges an error by its text alone. Many SDKs quote an error and don't wrap it.
func byText(text string) Verdict {
	if !throttleText.MatchString(text) && !throttling.MatchString(text) {
		return Verdict{}
	}
	return Verdict{Throttled: true, After: afterByText(text)}
}

// afterByText returns how long the text of an error asks to wait, at most maxAfterByText.
func afterByText(text string) time.Duration {
	m := afterText.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := number(m[1])
	unit := time.Second
	if strings.HasPrefix(strings.ToLower(m[2]), "m") {
		unit = time.Minute
	}
	return min(duration(n, unit), maxAfterByText)
}

// maxAfterByText is the longest wait by the text of an error, which may quote a user.
const maxAfterByText = time.Minute

// throttleCodes are the codes that AWS and Azure throttle with. Left out are codes that
// are also about quotas: LimitExceeded, OperationNotAllowed.
const throttleCodes = `(?:` +
	// AWS
	`Throttling\.\w+|ThrottlingException|ThrottledException|EC2ThrottledException|RequestThrottled(?:Exception)?|` +
	`RequestLimitExceeded|TooManyRequestsException|ProvisionedThroughputExceededException|BandwidthLimitExceeded|SlowDown|` +
	// Azure
	`(?:Subscription|Tenant|Resource|ResourceCollection)?Requests?Throttled|TooManyRequests(?:Received)?|` +
	`(?:Server|Account|Operation)(?:Busy|Throttled)|RateLimitExceeded|RateLimiting` +
	`)`

var throttleCode = regexp.MustCompile(`^` + throttleCodes + `$`)

// throttleText matches a code in a text. In double quotes a word is a code only as the value of a field. Otherwise it
// is mostly the name of something that a user has made.
var throttleText = regexp.MustCompile(
	`(?:^|[^"\w]|(?:=|"\s*:|(?i:code|type|error|reason):?)\s*\\*")` + throttleCodes + `\b`,
)

// throttling matches AWS's code that is also a word, and the HTTP status.
var throttling = regexp.MustCompile(`429 Too Many Requests|[Ss]tatus ?[Cc]ode\W{1,3}429\b|(?:^|api error |[Ee]rror: |[Cc]ode[:=]? ?"?|: )Throttling(?:: |"|$)`)

// afterText matches how long the text of an error asks to wait.
var afterText = regexp.MustCompile(
	`(?i)(?:retry|try again)[ -](?:after|in)["':=\s]{1,4}(\d+)['"]?\s*(minutes?|mins?|m|seconds?|secs?|s)?\b`,
)
