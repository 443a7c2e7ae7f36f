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

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func statedThrottled(err error, after time.Duration) error {
	return State(err, Meaning{Answer: Unserved, Throttled: true, After: after})
}

// meanings are errors and what they mean.
type meanings map[string]struct {
	err  error
	want Meaning
}

type groups map[string]struct {
	reason string
	cases  meanings
}

func expectMeanings(t *testing.T, all groups) {
	t.Helper()
	for group, g := range all {
		for name, tc := range g.cases {
			t.Run(group+"/"+name, func(t *testing.T) {
				if diff := cmp.Diff(tc.want, Of(tc.err, start)); diff != "" {
					t.Errorf("\n%s\nOf(%v): -want, +got:\n%s", g.reason, tc.err, diff)
				}
			})
		}
	}
}

func said(a Answer) Meaning { return Meaning{Answer: a, Evidence: Typed} }

func throttledFor(after time.Duration) Meaning {
	return Meaning{Answer: Unserved, Evidence: Typed, Throttled: true, After: after}
}

func apiServer(m Meaning) Meaning {
	m.APIServer = true
	return m
}

var errBoom = errors.New("boom")

const retryInfo = "type.googleapis.com/google.rpc.RetryInfo"

func TestOf(t *testing.T) {
	stated := func(after time.Duration) Meaning {
		return Meaning{Answer: Unserved, Evidence: Stated, Throttled: true, After: after}
	}
	refused, terminal := Meaning{Answer: Refused, Evidence: Stated}, Meaning{Evidence: Stated, Terminal: true}
	expectMeanings(t, groups{
		"Nothing": {"An error without evidence should say nothing.", meanings{
			"Nil":        {},
			"Plain":      {err: errBoom},
			"AzureNil":   {err: &azureError{}},
			"NilPointer": {err: (*azureError)(nil)},
			"AWSEmpty":   {err: awsCode("")},
			"GRPCNil":    {err: grpcError{}},
		}},
		"Statement": {"The outermost statement of the author should decide, through any wrapping.", meanings{
			"Throttled": {statedThrottled(errBoom, time.Minute), stated(time.Minute)},
			"Negative":  {statedThrottled(errBoom, -time.Minute), stated(0)},
			"Deep": {
				fmt.Errorf("a: %w", aggregate{errBoom, errors.Wrap(statedThrottled(errBoom, time.Minute), "c")}),
				stated(time.Minute),
			},
			"Aggregate":  {aggregate{errBoom, State(errors.New("b"), Meaning{Terminal: true})}, terminal},
			"Wrapped":    {errors.Wrap(State(errBoom, Meaning{Terminal: true}), "cannot create"), terminal},
			"OverAnswer": {State(statusError(429), Meaning{Terminal: true}), terminal},
			"Twice":      {statedThrottled(State(errBoom, Meaning{Terminal: true}), time.Second), stated(time.Second)},
			"OverStatus": {State(statusError(503), Meaning{Answer: Refused}), refused},
			"BelowStatus": {
				&SmithyError{Response: &smithyResponse{answer(409)}, Err: ErrNoAnswer},
				Meaning{Answer: NoAnswer, Evidence: Stated},
			},
			"BesideStatus": {
				aggregate{statusError(503), State(errBoom, Meaning{Answer: Refused})}, refused,
			},
		}},
		"Causes": {"Of causes that are joined, the one should decide that leaves most open.", meanings{
			"Exists":  {aggregate{status.Error(codes.AlreadyExists, "oh"), io.EOF}, said(NoAnswer)},
			"Texts":   {aggregate{errors.New("409 Oh"), errors.New("502")}, Meaning{Answer: NoAnswer, Evidence: Text}},
			"Timeout": {timeoutOf{dial(syscall.ECONNREFUSED)}, said(Unserved)},
		}},
		"OwnCode": {"A code without a response is an HTTP status only if it may leave the outcome open.", meanings{
			"Refusal": {codeError{Code: 422, cause: io.EOF}, said(NoAnswer)},
			"Failure": {codeError{Code: 503}, said(NoAnswer)},
		}},
		"Panics": {"An error whose method panics should be judged by its text.", meanings{
			"Text": {
				errors.Wrap(&lostError{text: "429 Too Many Requests"}, "cannot observe"),
				Meaning{Answer: Unserved, Evidence: Text, Throttled: true},
			},
		}},
		"Caller": {"A refusal because of the caller should say nothing about an earlier request.", meanings{
			"Text": {
				errors.New("StatusCode: 400, api error ExpiredToken: oh"), Meaning{Answer: Unserved, Evidence: Text},
			},
			"Code": {awsV1Error{code: "ExpiredToken", status: 400}, said(Unserved)},
		}},
		"Echo": {"The text should not count beside typed evidence.", meanings{
			"Status": {
				errors.Wrap(statusError(409), `rule "Many 502 Bad Gateway": StatusCode: 503`), said(Refused),
			},
			"AWS":        {errors.Wrap(awsCode("ValidationException"), echo), Meaning{Answer: Refused, Evidence: Text}},
			"AWSV1":      {awsV1Error{code: "ValidationError", text: echo}, Meaning{}},
			"HTTPStatus": {errors.Wrap(statusError(400), echo), said(Refused)},
			"Field":      {errors.Wrap(&teaError{Code: ptr("InvalidParameter")}, echo), Meaning{}},
			"GRPC":       {status.Error(codes.InvalidArgument, echo), said(Refused)},
			"Kubernetes": {kerrors.NewBadRequest(echo), apiServer(said(Refused))},
			"KubernetesReason": {
				&kerrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Message: echo}},
				apiServer(said(Refused)),
			},
			"KubernetesCode": {
				&kerrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: echo}}, apiServer(said(NoAnswer)),
			},
			"MultiError": {errors.Wrap(multiError{statusError(400), errBoom}, echo), said(Refused)},
			"Cause":      {awsV1Error{text: echo, cause: statusError(400)}, said(Refused)},
		}},
	})
}

func TestOf_Throttled(t *testing.T) {
	header := func(value string) error { return responseError{Response: answer(429, "Retry-After", value)} }
	forbidden := func(header ...string) error { return responseError{Response: answer(403, header...)} }
	unclear := Meaning{Answer: NoAnswer, Evidence: Typed, Throttled: true, After: 3 * time.Second}
	reset := strconv.FormatInt(start.Unix()+60, 10)
	expectMeanings(t, groups{
		"RetryAfter": {"Each form of Retry-After should be read. Nonsense should be no time.", meanings{
			"Seconds":  {header(" 17 "), throttledFor(17 * time.Second)},
			"Date":     {header(start.Add(90 * time.Second).Format(http.TimeFormat)), throttledFor(90 * time.Second)},
			"Past":     {header(start.Add(-time.Hour).Format(http.TimeFormat)), throttledFor(0)},
			"None":     {statusError(429), throttledFor(0)},
			"Nonsense": {header("soon"), throttledFor(0)},
			"NaN":      {header("nan"), throttledFor(0)},
			"Minus":    {header("-5"), throttledFor(0)},
			"Huge":     {header("99999999999999999999"), throttledFor(maxAfter)},
			"Azure": {
				responseError{Response: answer(429, "x-ms-retry-after-ms", "1500", "Retry-After", "2")},
				throttledFor(1500 * time.Millisecond),
			},
			"503":         {responseError{Response: answer(503, "Retry-After", "3")}, unclear},
			"503Without":  {responseError{Response: answer(503)}, said(NoAnswer)},
			"500":         {responseError{Response: answer(500, "Retry-After", "3")}, said(NoAnswer)},
			"403":         {forbidden("Retry-After", "7"), throttledFor(7 * time.Second)},
			"403Without":  {forbidden(), said(Unserved)},
			"403NoneLeft": {forbidden("X-RateLimit-Remaining", "0"), throttledFor(0)},
			"403Reset": {
				forbidden("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset),
				throttledFor(time.Minute),
			},
			"403SomeLeft": {
				forbidden("X-RateLimit-Remaining", "9", "X-RateLimit-Reset", reset),
				said(Unserved),
			},
		}},
		"EC2": {"A code for throttling says that the call was not carried out, even with status 503.", meanings{
			"Code": {
				&SmithyError{Response: &smithyResponse{answer(503)}, Err: awsCode("RequestLimitExceeded")},
				throttledFor(0),
			},
			"Wrapped": {
				methodError{503, errors.Wrap(fmt.Errorf("oh: %w", awsCode("RequestLimitExceeded")), "again")},
				throttledFor(0),
			},
			"Text": {errors.New("Throttling: Rate exceeded"), Meaning{Evidence: Text, Throttled: true}},
		}},
		"GRPCQuota": {"Without RetryInfo it may be a quota. Unavailable is about the server.", meanings{
			"Quota": {status.Error(codes.ResourceExhausted, "quota"), said(Unserved)},
			"Other": {
				withDetail(codes.ResourceExhausted, "type.googleapis.com/google.rpc.QuotaFailure", 0x0a, 2, 0x08, 30),
				said(Unserved),
			},
			"Unavailable": {withDetail(codes.Unavailable, retryInfo, 0x0a, 2, 0x08, 30), said(NoAnswer)},
		}},
	})
}

func TestOf_SDK(t *testing.T) {
	exists := Meaning{Answer: Refused, Evidence: Typed, Exists: true}
	expectMeanings(t, groups{
		"Shapes": {"The errors of each SDK should be read.", meanings{
			"Azure": {
				errors.Wrap(&azureError{
					ErrorCode: "x", StatusCode: 429, RawResponse: answer(429, "Retry-After", "5"),
				}, "cannot get"),
				throttledFor(5 * time.Second),
			},
			"AzureCode":   {&azureError{ErrorCode: "SubscriptionRequestsThrottled", StatusCode: 409}, throttledFor(0)},
			"AzureExists": {&azureError{ErrorCode: "VaultAlreadyExists", StatusCode: 409}, exists},
			"AWS": {
				&awsError{SmithyError: &SmithyError{
					Response: &smithyResponse{answer(429, "Retry-After", "7")}, Err: awsCode("Other"),
				}},
				throttledFor(7 * time.Second),
			},
			"AWSThrottled": {awsCode("Throttling"), throttledFor(0)},
			"AWSQuota":     {awsCode("LimitExceededException"), Meaning{Answer: Refused, Evidence: Text}},
			"AWSV1":        {awsV1Error{code: "RequestLimitExceeded", status: 503}, throttledFor(0)},
			"AWSV1Cause": {
				awsV1Error{code: "ResourceNotReady", cause: awsV1Error{code: "Throttling", status: 400}},
				throttledFor(0),
			},
			"Alibaba": {&teaError{Code: ptr("Throttling.User"), StatusCode: ptr(400)}, throttledFor(0)},
			"Autorest": {
				&autorestError{
					Response: answer(409, "Retry-After", "7"), ServiceError: &serviceError{Code: "TooManyRequests"},
				},
				throttledFor(7 * time.Second),
			},
			"Google": {
				&googleError{Code: 429, Header: http.Header{"Retry-After": {"4"}}}, throttledFor(4 * time.Second),
			},
			"GoogleExists": {
				&googleError{Code: 409, Header: http.Header{}, text: "Error 409: it already exists, alreadyExists"},
				exists,
			},
			"GoogleReason":   {&googleError{Code: 403, Errors: []googleItem{{"rateLimitExceeded"}}}, throttledFor(0)},
			"GoogleRefused":  {&googleError{Code: 422, Header: http.Header{}}, said(Refused)},
			"OpenStack":      {actualError{Actual: 504}, said(NoAnswer)},
			"Swagger":        {&methodCodeError{409}, said(Refused)},
			"Invalid":        {listError{Errors: []string{"name"}, StatusCode: 422}, said(Refused)},
			"SecondCode":     {listError{ErrorCode: "InternalError"}, said(NoAnswer)},
			"Tencent":        {awsCode("RequestLimitExceeded.UinLimitExceeded"), throttledFor(0)},
			"TencentNoMore":  {awsV1Error{code: "ResourceUnavailable"}, Meaning{}},
			"HetznerNoMore":  {awsV1Error{code: "resource_unavailable"}, Meaning{}},
			"Connect":        {errors.Wrap(rpcError[rpcCode]{14}, "cannot create"), said(NoAnswer)},
			"ConnectRefused": {rpcError[rpcCode]{3}, said(Refused)},
			"ConnectExists":  {rpcError[rpcCode]{6}, exists},
			"Twirp":          {rpcError[awsCode]{"internal"}, said(NoAnswer)},
			"TwirpMissing":   {rpcError[awsCode]{"not_found"}, said(NotFound)},
			"TwirpCaller":    {rpcError[awsCode]{"permission_denied"}, said(Unserved)},
			"Getter":         {getError{}, said(Refused)},
			"Cycle":          {newCycle(), said(Refused)},
			"GRPC": {
				errors.Wrap(withDetail(codes.ResourceExhausted, retryInfo, 0x0a, 2, 0x08, 30), "cannot list"),
				throttledFor(30 * time.Second),
			},
			"GRPCExists": {status.Error(codes.AlreadyExists, "oh"), exists},
			"Kubernetes": {
				errors.Wrap(kerrors.NewTooManyRequests("slow down", 9), "cannot get Secret"),
				apiServer(throttledFor(9 * time.Second)),
			},
		}},
	})
}

// quiet is an error whose text says nothing. Structs embed it.
type quiet struct{}

func (quiet) Error() string { return "oh" }

type (
	otherName struct {
		quiet

		HTTPResp *http.Response
	}
	statusText struct {
		quiet

		Status string
	}
	statusCode[T any] struct {
		quiet

		StatusCode T
	}
	authError  struct{ quiet }
	httpError  struct{ quiet }
	unexpected struct{ Actual int }
	getError   struct{ quiet }
	cycleError struct {
		*cycleError

		Response *http.Response
	}
	timeoutOf  struct{ error }
	retryError struct {
		error

		text string
	}
)

func newCycle() error {
	c := &cycleError{}
	c.cycleError, c.Response = c, &http.Response{StatusCode: http.StatusConflict}
	return c
}

func (authError) Status() int       { return http.StatusBadGateway }
func (httpError) HTTPStatus() int   { return http.StatusConflict }
func (e retryError) Error() string  { return e.text + e.error.Error() }
func (getError) GetStatusCode() int { return http.StatusConflict }
func (*cycleError) Error() string   { return "oh" }
func (timeoutOf) Timeout() bool     { return true }
func (e timeoutOf) Unwrap() error   { return e.error }
func (e retryError) Unwrap() error  { return e.error }

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
			err:    statusCode[string]{StatusCode: "503"}, want: NoAnswer,
		},
		"TextWithWords": {
			reason: "The status may be a text with its words.",
			err:    statusText{Status: "409 Conflict"}, want: Refused,
		},
		"State": {reason: "A status that is no number should not count.", err: statusText{Status: "failed"}},
		"Unsigned": {
			reason: "The status may be an unsigned number.",
			err:    statusCode[uint16]{StatusCode: 502}, want: NoAnswer,
		},
		"Pointer": {
			reason: "The status may be a pointer.",
			err:    &statusCode[*int32]{StatusCode: ptr(int32(422))}, want: Refused,
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
			err:    otherName{HTTPResp: response(500)}, want: NoAnswer,
		},
		"NoResponse": {reason: "A response that is missing should not matter.", err: otherName{}},
		"Status":     {reason: "The status may be a method, as Auth0's.", err: authError{}, want: NoAnswer},
		"HTTPStatus": {reason: "The status may be a method.", err: httpError{}, want: Refused},
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
		"AcceptedConflict": {
			reason: "So it does with the status of a refusal.",
			err:    retryError{error: statusError(409), text: "Future#WaitForCompletion: "}, want: NoAnswer,
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
	if Exists(errors.New(`rule "x" already exists`), "") {
		t.Error("A text should not be about an object that has no name")
	}
}
