package limit

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These errors have the fields and methods of errors that SDKs return.
type (
	// azcore
	azureError struct {
		ErrorCode   string
		StatusCode  int
		RawResponse *http.Response
	}

	// smithy-go and the AWS SDK
	smithyResponse struct{ *http.Response }
	smithyError    struct {
		Response *smithyResponse
		Err      error
	}
	awsError struct {
		*smithyError
		RequestID string
	}
	apiError struct{ code string }

	// Google Cloud's
	googleError struct {
		Code   int
		Header http.Header
	}

	// GitHub, DigitalOcean, Linode
	responseError struct{ Response *http.Response }

	statusError int

	// lostError is the error of an SDK whose methods need a response.
	lostError struct{ response *http.Response }

	// gRPC, with details
	grpcError struct{ s *status.Status }

	// AWS's first SDK
	awsV1Error struct {
		code, text string
		status     int
		cause      error
	}

	// Alibaba Cloud
	teaError struct {
		Code       *string
		StatusCode *int
	}

	// go-autorest
	serviceError  struct{ Code, Message string }
	autorestError struct {
		Response     *http.Response
		ServiceError *serviceError
	}

	// go-multierror, whose Unwrap leaves out the first error
	multiError []error
)

func (e *azureError) Error() string  { return "azure" }
func (e *smithyError) Error() string { return "smithy" }
func (e *smithyError) Unwrap() error { return e.Err }
func (e *smithyError) HTTPStatusCode() int {
	if e.Response == nil {
		return 0
	}
	return e.Response.StatusCode
}
func (e *awsError) Error() string              { return "aws" }
func (e *awsError) Unwrap() error              { return e.smithyError }
func (e apiError) Error() string               { return "api" }
func (e apiError) ErrorCode() string           { return e.code }
func (e *googleError) Error() string           { return "google" }
func (e responseError) Error() string          { return "response" }
func (e statusError) Error() string            { return "status" }
func (e *lostError) Error() string             { return "429 Too Many Requests" }
func (e *lostError) HTTPStatusCode() int       { return e.response.StatusCode }
func (e statusError) StatusCode() int          { return int(e) }
func (e grpcError) Error() string              { return "grpc" }
func (e awsV1Error) Error() string             { return e.text }
func (e awsV1Error) Code() string              { return e.code }
func (e awsV1Error) StatusCode() int           { return e.status }
func (e awsV1Error) OrigErr() error            { return e.cause }
func (e *teaError) Error() string              { return "SDKError" }
func (e *autorestError) Error() string         { return "autorest" }
func (e multiError) Error() string             { return "several errors" }
func (e multiError) WrappedErrors() []error    { return e }
func (e multiError) Unwrap() error             { return nil }
func (e grpcError) GRPCStatus() *status.Status { return e.s }

func response(code int, header ...string) *http.Response {
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

func TestJudge(t *testing.T) {
	throttled := func(after time.Duration) Verdict { return Verdict{Throttled: true, After: after, Refused: true} }
	unclear := func(after time.Duration) Verdict { return Verdict{Throttled: true, After: after} }
	date := start().Add(90 * time.Second).Format(http.TimeFormat)
	past := start().Add(-time.Hour).Format(http.TimeFormat)

	cases := map[string]struct {
		reason string
		err    error
		want   Verdict
	}{
		"Nil": {reason: "We should return an empty verdict if there is no error."},
		"Plain": {
			reason: "An ordinary error should not count as throttled or terminal.",
			err:    errors.New("boom"),
		},
		"Marked": {
			reason: "The mark should count.",
			err:    Throttled(errors.New("boom"), time.Minute),
			want:   throttled(time.Minute),
		},
		"MarkedDeep": {
			reason: "The mark should be found through any wrapping.",
			err: fmt.Errorf("a: %w", aggregate{
				errors.New("b"), errors.Wrap(Throttled(errors.New("boom"), time.Minute), "c"),
			}),
			want: throttled(time.Minute),
		},
		"Aggregate": {
			reason: "The mark should be found in Kubernetes' aggregates.",
			err:    aggregate{errors.New("a"), Terminal(errors.New("b"))},
			want:   Verdict{Terminal: true, Refused: true},
		},
		"Negative": {
			reason: "A negative time should be an unknown one.",
			err:    Throttled(errors.New("boom"), -time.Minute),
			want:   throttled(0),
		},
		"Terminal": {
			reason: "The mark should count.",
			err:    errors.Wrap(Terminal(errors.New("boom")), "cannot create"),
			want:   Verdict{Terminal: true, Refused: true},
		},
		"Outermost": {
			reason: "The provider's mark should decide over an answer that it wraps.",
			err:    Terminal(responseError{response(429)}),
			want:   Verdict{Terminal: true, Refused: true},
		},
		"MarkedTwice": {
			reason: "The outermost mark should decide.",
			err:    Throttled(Terminal(errors.New("boom")), time.Second),
			want:   throttled(time.Second),
		},

		"429Seconds": {
			reason: "Seconds should be read.",
			err:    responseError{response(429, "Retry-After", " 17 ")},
			want:   throttled(17 * time.Second),
		},
		"429Date": {
			reason: "A date should be read.",
			err:    responseError{response(429, "Retry-After", date)},
			want:   throttled(90 * time.Second),
		},
		"429Past": {
			reason: "A date in the past should be no wait.",
			err:    responseError{response(429, "Retry-After", past)},
			want:   throttled(0),
		},
		"429Silent": {
			reason: "The status alone should count as throttled.",
			err:    statusError(429),
			want:   throttled(0),
		},
		"429Nonsense": {
			reason: "A header that can't be read should be left out.",
			err:    responseError{response(429, "Retry-After", "soon")},
			want:   throttled(0),
		},
		"429Minus": {
			reason: "A negative number of seconds should be ignored.",
			err:    responseError{response(429, "Retry-After", "-5")},
			want:   throttled(0),
		},
		"429Huge": {
			reason: "A huge number should not overflow.",
			err:    responseError{response(429, "Retry-After", "99999999999999999999")},
			want:   throttled(maxClosed),
		},
		"429Ms": {
			reason: "Azure's header should be read.",
			err:    responseError{response(429, "x-ms-retry-after-ms", "1500", "Retry-After", "2")},
			want:   throttled(1500 * time.Millisecond),
		},
		"503RetryAfter": {
			reason: "A server that is overloaded may say so with 503; the call may have been carried out.",
			err:    responseError{response(503, "Retry-After", "3")},
			want:   unclear(3 * time.Second),
		},
		"503": {
			reason: "503 without Retry-After should not count as throttled.",
			err:    responseError{response(503)},
		},
		"500RetryAfter": {
			reason: "Statuses other than 429 and 503 should not count as throttled, even with Retry-After.",
			err:    responseError{response(500, "Retry-After", "3")},
		},
		"403": {
			reason: "403 should not count as throttled.",
			err:    &azureError{StatusCode: 403, RawResponse: response(403)},
		},

		"Azure": {
			reason: "azcore's error should be read.",
			err: errors.Wrap(&azureError{
				ErrorCode:   "x",
				StatusCode:  429,
				RawResponse: response(429, "Retry-After", "5"),
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
			err:    errors.Wrap(&lostError{}, "cannot observe"),
			want:   unclear(0),
		},
		"AzureNil":   {reason: "A response that is missing should not matter.", err: &azureError{}},
		"NilPointer": {reason: "A nil pointer as an error should not panic.", err: (*azureError)(nil)},
		"AWS": {
			reason: "smithy's response, which embeds net/http's, should be read.",
			err: &awsError{
				smithyError: &smithyError{
					Response: &smithyResponse{response(429, "Retry-After", "7")},
					Err:      apiError{"Other"},
				},
			},
			want: throttled(7 * time.Second),
		},
		"AWSCode": {
			reason: "EC2 throttles with 503 and a code: it has not carried out the call.",
			err:    &smithyError{Response: &smithyResponse{response(503)}, Err: apiError{"RequestLimitExceeded"}},
			want:   throttled(0),
		},
		"AWSThrottled": {
			reason: "The code that is also a word should be recognised.",
			err:    apiError{"Throttling"},
			want:   throttled(0),
		},
		"AWSQuota": {
			reason: "An exceeded quota should not count as throttled.",
			err:    apiError{"LimitExceededException"},
		},
		"AWSEmpty": {reason: "An empty code should not count as throttled.", err: apiError{""}},
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

		"TextSDKv2": {
			reason: "AWS's text should be recognised.",
			err:    errors.New(`operation error IAM: CreateRole, exceeded maximum number of attempts, 3, https response error StatusCode: 400, RequestID: 1, api error Throttling: Rate exceeded`),
			want:   unclear(0),
		},
		"TextSDKv1": {
			reason: "AWS's older text should be recognised.",
			err:    errors.New("create failed: Throttling: Rate exceeded\n\tstatus code: 400, request id: 1"),
			want:   unclear(0),
		},
		"TextException": {
			reason: "AWS's text should be recognised.",
			err:    errors.New("api error ThrottlingException: Rate exceeded"),
			want:   unclear(0),
		},
		"TextAzure": {
			reason: "Azure's text should be recognised.",
			err:    errors.New(`StatusCode=409 -- Original Error: Code="TooManyRequests" Message="Please try again after '12' seconds."`),
			want:   unclear(12 * time.Second),
		},
		"TextMinutes": {
			reason: "Azure may count minutes. A text alone should not close an account for longer than one.",
			err:    errors.New(`Code="SubscriptionRequestsThrottled" Message="Please retry after '5' minutes."`),
			want:   unclear(time.Minute),
		},
		"Text429": {
			reason: "The status as a text should be recognised.",
			err:    errors.New("unexpected answer: 429 Too Many Requests"),
			want:   unclear(0),
		},
		"TextStatus": {
			reason: "The status as a text should be recognised.",
			err:    errors.New("https response error StatusCode: 429, RequestID: 1"),
			want:   unclear(0),
		},
		"TextWord": {
			reason: "The word Throttling in another sentence should not count as throttled.",
			err:    errors.New("Throttling settings are invalid: ThrottlingBurstLimit must be positive"),
		},
		"TextName": {
			reason: "A code that is the name of something should not count as throttled.",
			err:    errors.New(`update failed: plugin "RateLimiting" is not valid: field "TooManyRequests" is unknown`),
		},
		"TextJSON": {
			reason: "A code that is the value of a field should be recognised.",
			err:    errors.New(`create failed: {"error": "{\"code\":\"TooManyRequests\"}"}`),
			want:   unclear(0),
		},
		"TextField": {
			reason: "A code in double quotes after the name of a field should be recognised.",
			err:    errors.New(`create failed: type: "ThrottlingException"`),
			want:   unclear(0),
		},
		"TextPort": {
			reason: "A port number should not be read as a status.",
			err:    errors.New("dial tcp 10.0.0.1:429: connection refused"),
		},
		"TextForever": {
			reason: "A text alone should not close an account for long, because it may quote a user.",
			err:    errors.New(echo),
			want:   unclear(time.Minute),
		},
		"TextWith429": {
			reason: "A text should not close an account for long with an answer that gives no time, either.",
			err:    errors.Wrap(statusError(429), echo),
			want:   throttled(time.Minute),
		},
		"EchoOfAWS": {
			reason: "The text should not count if the external system's code is another.",
			err:    errors.Wrap(apiError{"ValidationException"}, echo),
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
		"NothingSaid": {
			reason: "The text should count if no error carries an answer that says anything.",
			err: errors.Wrap(aggregate{
				statusError(0), statusError(200),
				apiError{""},
				&azureError{}, &teaError{},
				grpcError{},
				status.Error(codes.Unknown, "?"), &kerrors.StatusError{},
			}, "SlowDown"),
			want: unclear(0),
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
				Response: response(409, "Retry-After", "7"), ServiceError: &serviceError{Code: "TooManyRequests"},
			},
			want: throttled(7 * time.Second),
		},
		"TextRetryNumber": {
			reason: "A time alone should not count as throttled.",
			err:    errors.New("please retry after 5 seconds"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Judge(tc.err, start())); diff != "" {
				t.Errorf("\n%s\nJudge(%v): -want, +got:\n%s", tc.reason, tc.err, diff)
			}
		})
	}
}

type aggregate []error

func (a aggregate) Error() string   { return "aggregate" }
func (a aggregate) Errors() []error { return a }

func TestRetryDelay(t *testing.T) {
	cases := map[string]struct {
		reason string
		detail []byte
		want   time.Duration
	}{
		"Seconds": {reason: "Seconds should be decoded.", detail: []byte{0x0a, 2, 0x08, 30}, want: 30 * time.Second},
		"Nanos": {
			reason: "Nanoseconds should be decoded.",
			detail: []byte{0x0a, 8, 0x08, 1, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01},
			want:   1500 * time.Millisecond,
		},
		"Empty":     {reason: "No delay is no wait."},
		"Truncated": {reason: "A message that breaks off should not panic.", detail: []byte{0x0a, 9, 0x08}},
		"Negative": {
			reason: "A negative delay is no wait.",
			detail: []byte{0x0a, 11, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		},
		"NegativeNanos": {
			reason: "Negative nanoseconds are no wait.",
			detail: []byte{0x0a, 11, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		},
		"Garbage": {
			reason: "A field that can't be decoded should not panic.",
			detail: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		},
		"Huge": {
			reason: "A huge delay should not overflow.",
			detail: []byte{0x0a, 10, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
			want:   maxClosed,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, retryDelay(tc.detail)); diff != "" {
				t.Errorf("\n%s\nretryDelay(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMarks_OfNoError(t *testing.T) {
	if Throttled(nil, time.Second) != nil || Terminal(nil) != nil {
		t.Error("No error should stay no error.")
	}
	if got := Terminal(errors.New("boom")).Error(); got != "boom" {
		t.Errorf("A mark should not change the text of an error: got %q", got)
	}
}
