package failure

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func answer(code int, header ...string) *http.Response {
	r := &http.Response{StatusCode: code, Header: http.Header{}}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// withDetail returns a status with a detail of a type that is not linked.
func withDetail(code codes.Code, typeURL string, detail ...byte) error {
	p := status.New(code, "too much").Proto()
	d := elementOf(p.GetDetails())
	d.TypeUrl, d.Value = typeURL, detail
	p.Details = append(p.Details, d)
	return status.FromProto(p).Err()
}

func elementOf[T any]([]*T) *T { return new(T) }

func ptr[T any](v T) *T { return &v }

// echo is an error text that quotes a field which a user has set.
const echo = "Value 'SlowDown, retry after 86400' at 'tag' failed to satisfy constraint"

// advice is the part of a Meaning that is about the next call.
type advice struct {
	throttled, terminal bool
	after               time.Duration
	unserved            bool // the throttled call was not carried out
}

func adviceOf(m Meaning) advice {
	return advice{
		throttled: m.Throttled, terminal: m.Terminal, after: m.After,
		unserved: m.Throttled && m.Evidence >= Typed && m.Answer != NoAnswer,
	}
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func statedThrottled(err error, after time.Duration) error {
	return State(err, Meaning{Answer: Unserved, Throttled: true, After: after})
}

func TestOf_Throttled(t *testing.T) {
	throttled := func(after time.Duration) advice { return advice{throttled: true, after: after, unserved: true} }
	unclear := func(after time.Duration) advice { return advice{throttled: true, after: after} }
	date := start.Add(90 * time.Second).Format(http.TimeFormat)
	past := start.Add(-time.Hour).Format(http.TimeFormat)

	cases := map[string]struct {
		reason string
		err    error
		want   advice
	}{
		"Nil": {reason: "We should return an empty verdict if there is no error."},
		"Plain": {
			reason: "An ordinary error should not count as throttled or terminal.",
			err:    errors.New("boom"),
		},
		"Marked": {
			reason: "The mark should count.",
			err:    State(errors.New("boom"), Meaning{Answer: Unserved, Throttled: true, After: time.Minute}),
			want:   throttled(time.Minute),
		},
		"MarkedDeep": {
			reason: "The mark should be found through any wrapping.",
			err: fmt.Errorf("a: %w", aggregate{
				errors.New("b"), errors.Wrap(statedThrottled(errors.New("boom"), time.Minute), "c"),
			}),
			want: throttled(time.Minute),
		},
		"Aggregate": {
			reason: "The mark should be found in Kubernetes' aggregates.",
			err:    aggregate{errors.New("a"), State(errors.New("b"), Meaning{Terminal: true})},
			want:   advice{terminal: true},
		},
		"Negative": {
			reason: "A negative time should be an unknown one.",
			err:    State(errors.New("boom"), Meaning{Answer: Unserved, Throttled: true, After: -time.Minute}),
			want:   throttled(0),
		},
		"Terminal": {
			reason: "The mark should count.",
			err:    errors.Wrap(State(errors.New("boom"), Meaning{Terminal: true}), "cannot create"),
			want:   advice{terminal: true},
		},
		"Outermost": {
			reason: "The provider's mark should decide over an answer that it wraps.",
			err:    State(responseError{Response: answer(429)}, Meaning{Terminal: true}),
			want:   advice{terminal: true},
		},
		"MarkedTwice": {
			reason: "The outermost mark should decide.",
			err:    statedThrottled(State(errors.New("boom"), Meaning{Terminal: true}), time.Second),
			want:   throttled(time.Second),
		},

		"429Seconds": {
			reason: "Seconds should be read.",
			err:    responseError{Response: answer(429, "Retry-After", " 17 ")},
			want:   throttled(17 * time.Second),
		},
		"429Date": {
			reason: "A date should be read.",
			err:    responseError{Response: answer(429, "Retry-After", date)},
			want:   throttled(90 * time.Second),
		},
		"429Past": {
			reason: "A date in the past should be no wait.",
			err:    responseError{Response: answer(429, "Retry-After", past)},
			want:   throttled(0),
		},
		"429Silent": {
			reason: "The status alone should count as throttled.",
			err:    statusError(429),
			want:   throttled(0),
		},
		"429Nonsense": {
			reason: "A header that can't be read should be left out.",
			err:    responseError{Response: answer(429, "Retry-After", "soon")},
			want:   throttled(0),
		},
		"429Minus": {
			reason: "A negative number of seconds should be ignored.",
			err:    responseError{Response: answer(429, "Retry-After", "-5")},
			want:   throttled(0),
		},
		"429Huge": {
			reason: "A huge number should not overflow.",
			err:    responseError{Response: answer(429, "Retry-After", "99999999999999999999")},
			want:   throttled(maxAfter),
		},
		"429Ms": {
			reason: "Azure's header should be read.",
			err:    responseError{Response: answer(429, "x-ms-retry-after-ms", "1500", "Retry-After", "2")},
			want:   throttled(1500 * time.Millisecond),
		},
		"503RetryAfter": {
			reason: "A server that is overloaded may say so with 503; the call may have been carried out.",
			err:    responseError{Response: answer(503, "Retry-After", "3")},
			want:   unclear(3 * time.Second),
		},
		"503": {
			reason: "503 without Retry-After should not count as throttled.",
			err:    responseError{Response: answer(503)},
		},
		"500RetryAfter": {
			reason: "Statuses other than 429 and 503 should not count as throttled, even with Retry-After.",
			err:    responseError{Response: answer(500, "Retry-After", "3")},
		},
		"403": {
			reason: "403 should not count as throttled.",
			err:    &azureError{StatusCode: 403, RawResponse: answer(403)},
		},

		"Azure": {
			reason: "azcore's error should be read.",
			err: errors.Wrap(&azureError{
				ErrorCode:   "x",
				StatusCode:  429,
				RawResponse: answer(429, "Retry-After", "5"),
			}, "cannot get"),
			want: throttled(5 * time.Second),
		},
		"AzureCode": {
			reason: "Azure's code should be recognised with another status.",
			err:    &azureError{ErrorCode: "SubscriptionRequestsThrottled", StatusCode: 409},
			want:   throttled(0),
		},
		"Panics": {
			reason: "An error whose method panics should be judged by its text.",
			err:    errors.Wrap(&lostError{text: "429 Too Many Requests"}, "cannot observe"),
			want:   unclear(0),
		},
		"AzureNil":   {reason: "A response that is missing should not matter.", err: &azureError{}},
		"NilPointer": {reason: "A nil pointer as an error should not panic.", err: (*azureError)(nil)},
		"AWS": {
			reason: "smithy's response, which embeds net/http's, should be read.",
			err: &awsError{
				SmithyError: &SmithyError{
					Response: &smithyResponse{answer(429, "Retry-After", "7")},
					Err:      awsCode("Other"),
				},
			},
			want: throttled(7 * time.Second),
		},
		"AWSCode": {
			reason: "EC2 throttles with 503 and a code: it has not carried out the call.",
			err:    &SmithyError{Response: &smithyResponse{answer(503)}, Err: awsCode("RequestLimitExceeded")},
			want:   throttled(0),
		},
		"AWSThrottled": {
			reason: "The code that is also a word should be recognised.",
			err:    awsCode("Throttling"),
			want:   throttled(0),
		},
		"AWSQuota": {
			reason: "An exceeded quota should not count as throttled.",
			err:    awsCode("LimitExceededException"),
		},
		"AWSEmpty": {reason: "An empty code should not count as throttled.", err: awsCode("")},
		"Google": {
			reason: "googleapi's error should be read.",
			err:    &googleError{Code: 429, Header: http.Header{"Retry-After": {"4"}}},
			want:   throttled(4 * time.Second),
		},
		"GRPCQuota": {
			reason: "ResourceExhausted without RetryInfo should not count as throttled, because it may be a quota.",
			err:    status.Error(codes.ResourceExhausted, "quota"),
		},
		"GRPC": {
			reason: "RetryInfo should be read.",
			err: errors.Wrap(
				withDetail(codes.ResourceExhausted, "type.googleapis.com/google.rpc.RetryInfo", 0x0a, 2, 0x08, 30),
				"cannot list",
			),
			want: throttled(30 * time.Second),
		},
		"GRPCOther": {
			reason: "Details other than RetryInfo should be ignored.",
			err: withDetail(
				codes.ResourceExhausted, "type.googleapis.com/google.rpc.QuotaFailure", 0x0a, 2, 0x08, 30,
			),
		},
		"GRPCLost": {
			reason: "Unavailable should not count as throttled, because it is about the server.",
			err:    withDetail(codes.Unavailable, "type.googleapis.com/google.rpc.RetryInfo", 0x0a, 2, 0x08, 30),
		},
		"GRPCNil": {reason: "A nil status should not panic.", err: grpcError{}},
		"Kubernetes": {
			reason: "An API server's answer should be read.",
			err:    kerrors.NewTooManyRequests("slow down", 9),
			want:   throttled(9 * time.Second),
		},

		"EchoOfAWS": {
			reason: "The text should not count if the external system's code is another.",
			err:    errors.Wrap(awsCode("ValidationException"), echo),
		},
		"EchoOfAWSV1": {
			reason: "The text should not count if the external system's code is another.",
			err:    awsV1Error{code: "ValidationError", text: echo},
		},
		"EchoWithHTTPStatus": {
			reason: "The text should not count if the HTTP status is another.",
			err:    errors.Wrap(statusError(400), echo),
		},
		"EchoOfField": {
			reason: "The text should not count if the external system's code is another.",
			err:    errors.Wrap(&teaError{Code: ptr("InvalidParameter")}, echo),
		},
		"EchoOfGRPC": {
			reason: "The text should not count if the gRPC code is another.",
			err:    status.Error(codes.InvalidArgument, echo),
		},
		"EchoOfKubernetes": {
			reason: "The text should not count if the API server's answer is another.",
			err:    kerrors.NewBadRequest(echo),
		},
		"EchoOfKubernetesReason": {
			reason: "The text should not count if the API server gives another reason.",
			err: &kerrors.StatusError{
				ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Message: echo},
			},
		},
		"EchoOfKubernetesCode": {
			reason: "The text should not count if the API server gives a code and no reason.",
			err:    &kerrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: echo}},
		},
		"EchoInMultiError": {
			reason: "Each error of a go-multierror should be read.",
			err:    errors.Wrap(multiError{statusError(400), errors.New("boom")}, echo),
		},
		"EchoInCause": {
			reason: "The cause in an error of AWS's first SDK should be read.",
			err:    awsV1Error{text: echo, cause: statusError(400)},
		},
		"AWSV1": {
			reason: "The code of AWS's first SDK should count with another status.",
			err:    awsV1Error{code: "RequestLimitExceeded", status: 503},
			want:   throttled(0),
		},
		"AWSV1Cause": {
			reason: "The cause in an error of AWS's first SDK should be read.",
			err:    awsV1Error{code: "ResourceNotReady", cause: awsV1Error{code: "Throttling", status: 400}},
			want:   throttled(0),
		},
		"Alibaba": {
			reason: "Alibaba Cloud's code should count with another status.",
			err:    &teaError{Code: ptr("Throttling.User"), StatusCode: ptr(400)},
			want:   throttled(0),
		},
		"Autorest": {
			reason: "The code that go-autorest nests should count with another status.",
			err: &autorestError{
				Response: answer(409, "Retry-After", "7"), ServiceError: &serviceError{Code: "TooManyRequests"},
			},
			want: throttled(7 * time.Second),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, adviceOf(Of(tc.err, start)), cmp.AllowUnexported(advice{})); diff != "" {
				t.Errorf("\n%s\nOf(%v): -want, +got:\n%s", tc.reason, tc.err, diff)
			}
		})
	}
}

func TestOf(t *testing.T) {
	typed := func(a Answer) Meaning { return Meaning{Answer: a, Evidence: Typed} }
	limited := func(after time.Duration) Meaning {
		return Meaning{Answer: Unserved, Evidence: Typed, Throttled: true, After: after}
	}
	reset := strconv.FormatInt(start.Add(time.Minute).Unix(), 10)
	cases := map[string]struct {
		reason string
		err    error
		want   Meaning
	}{
		"Statement": {
			reason: "A statement of the author should win over a status.",
			err:    State(statusError(503), Meaning{Answer: Refused}),
			want:   Meaning{Answer: Refused, Evidence: Stated},
		},
		"StatementBelow": {
			reason: "A statement of the author should win over the status of an error that wraps it.",
			err:    &SmithyError{Response: &smithyResponse{answer(409)}, Err: ErrNoAnswer},
			want:   Meaning{Answer: NoAnswer, Evidence: Stated},
		},
		"Actual": {
			reason: "OpenStack's field should be read.",
			err:    actualError{Actual: 504},
			want:   typed(NoAnswer),
		},
		"CodeOfItsOwn": {
			reason: "A code should not be an HTTP status without a response, so a refusal in it should not hide a lost answer.",
			err:    codeError{Code: 422, cause: io.EOF},
			want:   typed(NoAnswer),
		},
		"CodeWithHeader": {
			reason: "Google Cloud's code is an HTTP status.",
			err:    &googleError{Code: 422, Header: http.Header{}},
			want:   typed(Refused),
		},
		"CodeOf5xx": {
			reason: "A code that may be an HTTP status should leave the outcome open.",
			err:    codeError{Code: 503},
			want:   typed(NoAnswer),
		},
		"Forbidden": {
			reason: "403 is about the caller.",
			err:    responseError{Response: answer(403)},
			want:   typed(Unserved),
		},
		"ForbiddenRetryAfter": {
			reason: "403 with Retry-After is how GitHub throttles.",
			err:    responseError{Response: answer(403, "Retry-After", "7")},
			want:   limited(7 * time.Second),
		},
		"ForbiddenRemaining": {
			reason: "403 without remaining calls is how GitHub throttles, until the time that it gives.",
			err:    responseError{Response: answer(403, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset)},
			want:   limited(time.Minute),
		},
		"ForbiddenRemainingAlone": {
			reason: "403 without remaining calls and without a time should count as throttled.",
			err:    responseError{Response: answer(403, "X-RateLimit-Remaining", "0")},
			want:   limited(0),
		},
		"APIServer": {
			reason: "An answer of an API server should be marked, because it closes no account when a client is connected.",
			err:    errors.Wrap(kerrors.NewTooManyRequests("slow down", 9), "cannot get Secret"),
			want: Meaning{
				Answer: Unserved, Evidence: Typed, Throttled: true, After: 9 * time.Second, APIServer: true,
			},
		},
		"TypedOverText": {
			reason: "A status should win over the text.",
			err:    errors.Wrap(statusError(409), `rule "Many 502 Bad Gateway": StatusCode: 503`),
			want:   typed(Refused),
		},
		"ExistsGoogle": {
			reason: "Google Cloud's code that says so is in the text.",
			err:    &googleError{Code: 409, Header: http.Header{}, text: "Error 409: it already exists, alreadyExists"},
			want:   Meaning{Answer: Refused, Evidence: Typed, Exists: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Of(tc.err, start)); diff != "" {
				t.Errorf("\n%s\nOf(%v): -want, +got:\n%s", tc.reason, tc.err, diff)
			}
		})
	}
}

// quiet is an error whose text says nothing. Structs embed it.
type quiet struct{}

func (quiet) Error() string { return "oh" }

type (
	authError  struct{ quiet }
	httpError  struct{ quiet }
	hcloudCode string
	unexpected struct{ Actual int }
	retryError struct {
		error

		text string
	}
)

func (authError) Status() int      { return http.StatusBadGateway }
func (httpError) HTTPStatus() int  { return http.StatusConflict }
func (e retryError) Error() string { return e.text + e.error.Error() }
func (e retryError) Unwrap() error { return e.error }

func TestOf_Shapes(t *testing.T) {
	response := func(code int) *http.Response { return &http.Response{StatusCode: code} }
	refused := post(dial(syscall.ECONNREFUSED))
	cases := map[string]struct {
		reason string
		err    error
		want   Answer
	}{
		"Text": {
			reason: "The status may be a text.",
			err: struct {
				quiet
				StatusCode string
			}{StatusCode: "503"}, want: NoAnswer,
		},
		"TextWithWords": {
			reason: "The status may be a text with its words.",
			err: struct {
				quiet
				Status string
			}{Status: "409 Conflict"}, want: Refused,
		},
		"State": {
			reason: "A status that is no number should not count.",
			err: struct {
				quiet
				Status string
			}{Status: "failed"}, want: Unsaid,
		},
		"Unsigned": {
			reason: "The status may be an unsigned number.",
			err: struct {
				quiet
				StatusCode uint16
			}{StatusCode: 502}, want: NoAnswer,
		},
		"Pointer": {
			reason: "The status may be a pointer.",
			err: &struct {
				quiet
				HTTPStatusCode *int32
			}{HTTPStatusCode: ptr(int32(422))}, want: Refused,
		},
		"Embedded": {
			reason: "The response may be embedded.",
			err: struct {
				quiet
				*http.Response
			}{Response: response(504)}, want: NoAnswer,
		},
		"EmbeddedStatus": {
			reason: "The status may be in a struct that is embedded, as OpenStack's.",
			err: struct {
				quiet
				unexpected
			}{unexpected: unexpected{Actual: 503}}, want: NoAnswer,
		},
		"OtherName": {
			reason: "The response may have another name.",
			err: struct {
				quiet
				HTTPResp *http.Response
			}{HTTPResp: response(500)}, want: NoAnswer,
		},
		"NoResponse": {
			reason: "A response that is missing should not matter.",
			err: struct {
				quiet
				HTTPResp *http.Response
			}{}, want: Unsaid,
		},
		"Status":     {reason: "The status may be a method, as Auth0's.", err: authError{}, want: NoAnswer},
		"HTTPStatus": {reason: "The status may be a method.", err: httpError{}, want: Refused},
		"Tencent": {
			reason: "A code that says that the server failed should leave the outcome open.",
			err: struct {
				quiet
				Code, Message string
			}{Code: "InternalError"}, want: NoAnswer,
		},
		"Hetzner": {
			reason: "A code may have a type of its own.",
			err: struct {
				quiet
				Code hcloudCode
			}{Code: "service_error"}, want: NoAnswer,
		},
		"StatusOverCode": {
			reason: "The status should decide over a code.",
			err:    &azureError{StatusCode: http.StatusConflict, ErrorCode: "InternalError"}, want: Refused,
		},
		"Attempts": {
			reason: "An earlier attempt may have been carried out if only the last one was not sent.",
			err:    retryError{error: refused, text: "POST https://h giving up after 5 attempt(s): "}, want: NoAnswer,
		},
		"AttemptsToLogIn": {
			reason: "A client that could not log in has sent nothing.",
			err:    retryError{error: refused, text: "get identity: exceeded maximum number of attempts, 3: "},
			want:   Unserved,
		},
		"RefusedAttempts": {
			reason: "The refusal of the last attempt should decide.",
			err:    retryError{error: statusError(400), text: "gave up after 3 attempts: "}, want: Refused,
		},
		"Accepted": {
			reason: "Azure's first SDK returns any status after it has waited in vain for an accepted request.",
			err:    retryError{error: statusError(404), text: "Future#WaitForCompletion: "}, want: NoAnswer,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Of(tc.err, start).Answer; got != tc.want {
				t.Errorf("\n%s\nOf(%#v).Answer: want %d, got %d", tc.reason, tc.err, tc.want, got)
			}
		})
	}
}

func TestExists(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		want         bool
	}{
		"Name":     {"The text says so of the name.", `bucket "a" already exists`, true},
		"Unquoted": {"The text says so of the name.", "resource a already exists", true},
		"Code":     {"A code says so.", "error 409: ALREADY_EXISTS", true},
		"Owned":    {"A code says so.", "BucketAlreadyOwnedByYou: try another name", true},
		"Part":     {"A part of the external resource exists.", "cannot add rule to a: rule already exists", false},
		"Lost":     {"The answer was lost.", "a already exists: 502 Bad Gateway", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Exists(errors.New(tc.text), "a"); got != tc.want {
				t.Errorf("\n%s\nExists(%q, a): want %t, got %t", tc.reason, tc.text, tc.want, got)
			}
		})
	}
}
