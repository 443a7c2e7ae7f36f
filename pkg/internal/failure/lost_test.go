package failure

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"syscall"
	"testing"

	pkgerrors "github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// post returns an error of package net/http.
func post(cause error) error {
	return pkgerrors.Wrap(&url.Error{Op: "Post", URL: "https://cloud", Err: cause}, "cannot create")
}

func dial(cause error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: cause} }

func read(cause error) error { return &net.OpError{Op: "read", Net: "tcp", Err: cause} }

var errQuota = errors.New("quota exceeded")

func throttled(err error) error {
	return State(err, Meaning{Answer: Unserved, Throttled: true})
}

func expectLost(t *testing.T, reason string, want bool, err error) {
	t.Helper()
	if got := Lost(err, Text); got != want {
		t.Errorf("\n%s\nLost(%v): want %t, got %t", reason, err, want, got)
	}
}

type lostErrors map[string]struct {
	reason string
	want   bool
	errs   map[string]error
}

func expectAllLost(t *testing.T, groups lostErrors) {
	t.Helper()
	for group, g := range groups {
		for name, err := range g.errs {
			t.Run(group+"/"+name, func(t *testing.T) {
				expectLost(t, g.reason, g.want, err)
			})
		}
	}
}

func TestLost(t *testing.T) {
	expectAllLost(t, lostErrors{
		"Nothing": {
			reason: "An error that says nothing about a request means that nothing was created, as with upstream.",
			errs: map[string]error{
				"Nil":              nil,
				"Refused":          errQuota,
				"Statusless":       statusless{errQuota},
				"WithoutStatus":    &fieldError{body: "quota exceeded"},
				"WithoutResponse":  &responseError{text: "quota exceeded"},
				"LostResponse":     &lostError{text: "quota exceeded"},
				"CodeOfItsOwn":     &codeError{Code: 50001, text: "quota exceeded"},
				"SmallCode":        &codeError{Code: 200, text: "quota exceeded"},
				"NoHTTPStatus":     &fieldError{600, "quota exceeded"},
				"NilPointer":       fmt.Errorf("cannot create: %w", (*nilError)(nil)),
				"WrongInput":       json.Unmarshal([]byte("{nonsense}"), &struct{}{}),
				"ParsedURL":        &url.Error{Op: "parse", URL: ":", Err: errors.New("missing protocol scheme")},
				"KubernetesNoCode": &kerrors.StatusError{},
				"WithoutAnyStatus": anyFieldError{Original: errQuota},
				"TextOfItsOwn":     &anyFieldError{StatusCode: "no answer", Original: errQuota},
				"MethodOfItsOwn":   &methodCodeError{50001},
			},
		},
		"Said": {
			reason: "The client says that the outcome is unknown, and the rest of the error does not matter.",
			want:   true,
			errs: map[string]error{
				"Wrapped": pkgerrors.Wrap(errors.Join(errQuota, ErrNoAnswer), "cannot create"),
				"WithRefusal": fmt.Errorf(
					"%w: %w", status.Error(codes.AlreadyExists, "it's ours"), ErrNoAnswer,
				),
				"InRefusal": methodError{http.StatusConflict, ErrNoAnswer},
			},
		},
		"NotSent": {
			reason: "Nothing is sent before a connection is made.",
			errs: map[string]error{
				"Refused":           post(dial(syscall.ECONNREFUSED)),
				"RefusedBare":       syscall.ECONNREFUSED,
				"TimedOut":          post(dial(os.ErrDeadlineExceeded)),
				"TimedOutByContext": post(dial(context.DeadlineExceeded)),
				"Twice":             errors.Join(dial(os.ErrDeadlineExceeded), dial(os.ErrDeadlineExceeded)),
				"Proxy": post(&net.OpError{
					Op:  "proxyconnect",
					Net: "tcp",
					Err: dial(syscall.ECONNREFUSED),
				}),
				"NoSuchHost":          post(&net.DNSError{Err: "no such host", Name: "cloud", IsNotFound: true}),
				"NameServerTimeout":   &net.DNSError{Err: "i/o timeout", Name: "cloud", IsTimeout: true},
				"UnknownAuthority":    post(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}),
				"UnknownAuthorityOld": post(x509.UnknownAuthorityError{}),
				"NotTLS": post(tls.RecordHeaderError{
					Msg: "first record does not look like a TLS handshake",
				}),
				"NotHTTPS":         post(errors.New("http: server gave HTTP response to HTTPS client")),
				"HandshakeTimeout": post(errors.New("net/http: TLS handshake timeout")),
				"Scheme":           post(errors.New(`unsupported protocol scheme "htps"`)),
				"NoHost":           post(errors.New("http: no Host in request URL")),
				"Header":           post(errors.New(`net/http: invalid header field value for "Authorization"`)),
				"Token": post(&responseError{
					Response: &http.Response{StatusCode: http.StatusUnauthorized},
					text:     "oauth2: cannot fetch token",
				}),
			},
		},
		"NoAnswer": {
			reason: "The client did not wait for the answer, or the connection broke after the request may have been sent.",
			want:   true,
			errs: map[string]error{
				"Deadline":         pkgerrors.Wrap(context.DeadlineExceeded, "cannot create"),
				"Cancelled":        post(context.Canceled),
				"CancelledFor":     post(errors.New("the lease was lost")),
				"CancelledLogIn":   post(errors.New("cannot renew the session: status code 401")),
				"ReadTimedOut":     read(os.ErrDeadlineExceeded),
				"TimedOut":         post(os.ErrDeadlineExceeded),
				"TimedOutErrno":    syscall.ETIMEDOUT,
				"Reset":            post(read(syscall.ECONNRESET)),
				"ResetBare":        pkgerrors.Wrap(syscall.ECONNRESET, "cannot create"),
				"Aborted":          syscall.ECONNABORTED,
				"BrokenPipe":       syscall.EPIPE,
				"Closed":           net.ErrClosed,
				"ClosedPipe":       io.ErrClosedPipe,
				"EOF":              post(io.EOF),
				"HalfAnAnswer":     io.ErrUnexpectedEOF,
				"InName":           fmt.Errorf("rule (StatusCode: 409): %w", io.ErrUnexpectedEOF),
				"HalfAnAnswerHTTP": methodError{http.StatusOK, io.ErrUnexpectedEOF},
				"BrokenBody":       gzip.ErrChecksum,
				"HalfAnObject":     json.Unmarshal([]byte(`{"id": "a`), &struct{}{}),
				"ServerClosed": post(
					errors.New("net/http: HTTP/1.x transport connection broken: http: server closed idle connection"),
				),
				"Malformed": post(errors.New("net/http: malformed HTTP response")),
				"DialedAgain": fmt.Errorf(
					"tried twice: %w", errors.Join(dial(syscall.ECONNREFUSED), read(syscall.ECONNRESET)),
				),
				"Aggregate": utilerrors.NewAggregate([]error{
					errQuota, methodError{http.StatusBadGateway, errQuota},
				}),
				"MultiError": multiError{read(syscall.EHOSTUNREACH), errQuota},
				"JoinedText": errors.Join(
					methodError{http.StatusConflict, errQuota}, fmt.Errorf("POST https://h/x: 502: %w", errQuota),
				),
				"MultiErrorText": multiError{&fieldError{http.StatusConflict, "oh"}, errors.New("create failed 502")},
				"OnlyTimeout":    pkgerrors.Wrap(&timeoutError{}, "cannot create"),
			},
		},
	})
}

func TestLost_Answered(t *testing.T) {
	expectAllLost(t, lostErrors{
		"HTTP2": {
			reason: "HTTP/2 has errors of its own, which need not be in a url.Error.", want: true,
			errs: map[string]error{
				"Lost": post(errors.New("http2: client connection lost")),
				"GoAway": post(errors.New(
					"http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=\"\"",
				)),
				"Stream": post(errors.New("stream error: stream ID 1; INTERNAL_ERROR; received from peer")),
			},
		},
		"Answered": {
			reason: "The external system refused the request. Its answer may quote other errors.",
			errs: map[string]error{
				"Method": methodError{
					http.StatusBadRequest, errors.New("context deadline exceeded is not a name"),
				},
				"Field": &fieldError{http.StatusConflict, "another operation timed out"},
				"Code": &codeError{
					Code: http.StatusForbidden, text: "googleapi: Error 403: backend quota, 500 Internal Server Error",
				},
				"Response":   &responseError{&http.Response{StatusCode: http.StatusUnprocessableEntity}, "EOF"},
				"Wrapped":    fmt.Errorf("cannot create: %w", &fieldError{http.StatusTooManyRequests, "timeout"}),
				"Unreadable": methodError{http.StatusNotFound, io.ErrUnexpectedEOF},
				"Kubernetes": kerrors.NewForbidden(
					schema.GroupResource{Resource: "vms"}, "a", errors.New("request timeout is too long"),
				),
				"KubernetesIs": pkgerrors.Wrap(
					kerrors.NewAlreadyExists(schema.GroupResource{Resource: "vms"}, "a"), "cannot create",
				),
				"Swagger":  &methodCodeError{http.StatusConflict},
				"GRPC":     status.Error(codes.InvalidArgument, "the wait timed out"),
				"AnyField": anyFieldError{http.StatusBadRequest, errors.New("the wait timed out")},
			},
		},
		"Throttled": {
			reason: "The external system did not carry out a call that it throttles.",
			errs: map[string]error{
				"Marked": pkgerrors.Wrap(
					throttled(methodError{http.StatusServiceUnavailable, io.EOF}), "cannot create",
				),
				"Terminal": State(post(io.EOF), Meaning{Terminal: true}),
				"Code":     methodError{http.StatusServiceUnavailable, awsCode("RequestLimitExceeded")},
				"Status":   methodError{http.StatusTooManyRequests, errors.New("timeout")},
			},
		},
		"ThrottledLater": {
			reason: "A create that was carried out may be throttled while it waits for the external resource.",
			want:   true,
			errs: map[string]error{
				"Text": errors.New(
					"timeout while waiting for state (last error: api error ThrottlingException: Rate exceeded)",
				),
				"Marked": fmt.Errorf("%w: %w", ErrNoAnswer, throttled(errQuota)),
				"Header": methodError{http.StatusServiceUnavailable, errQuota},
			},
		},
		"ServerFailed": {
			reason: "A server that failed may have created the external resource. So may a client that can't read a success.",
			want:   true,
			errs: map[string]error{
				"Method":     methodError{http.StatusInternalServerError, errQuota},
				"MethodCode": methodError{http.StatusInternalServerError, awsCode("CacheExpired")},
				"Throttled":  methodError{http.StatusBadGateway, kerrors.NewTooManyRequests("slow down", 1)},
				"Field":      &fieldError{http.StatusBadGateway, "oh"},
				"Code":       &codeError{Code: http.StatusServiceUnavailable, text: "oh"},
				"Response": fmt.Errorf("cannot create: %w", &responseError{&http.Response{
					StatusCode: http.StatusGatewayTimeout,
				}, "oh"}),
				"RequestTimeout": methodError{http.StatusRequestTimeout, errQuota},
				"Unsupported":    methodError{http.StatusNotImplemented, errQuota},
				"CDN":            &fieldError{524, "oh"},
				"Success":        methodError{http.StatusCreated, errors.New("cannot deserialize")},
				"AnyField":       anyFieldError{http.StatusInternalServerError, errQuota},
				"AnySuccess":     pkgerrors.Wrap(&anyFieldError{http.StatusOK, errQuota}, "cannot create"),
				"Swagger":        &methodCodeError{http.StatusInternalServerError},
				"MultiError":     multiError{&fieldError{http.StatusBadGateway, "oh"}, errQuota},
				"Kubernetes":     kerrors.NewInternalError(errQuota),
				"KubernetesLate": kerrors.NewTimeoutError("late", 1),
				"Second": errors.Join(methodError{
					http.StatusNotFound, errQuota,
				}, methodError{http.StatusInternalServerError, errQuota}),
			},
		},
		"GRPC": {
			reason: "gRPC wraps, joins and counts like the others.", want: true,
			errs: map[string]error{
				"Wrapped": pkgerrors.Wrap(status.Error(codes.DeadlineExceeded, "late"), "cannot create"),
				"Joined":  errors.Join(errQuota, status.Error(codes.DeadlineExceeded, "late")),
				"Second": errors.Join(
					status.Error(codes.NotFound, "no such parent"), status.Error(codes.Unavailable, "gone"),
				),
				"TooLarge": status.Error(
					codes.ResourceExhausted, "grpc: received message larger than max (5000000 vs. 4194304)",
				),
			},
		},
	})
}

func TestLost_GRPC(t *testing.T) {
	unknown := map[codes.Code]bool{
		codes.Canceled: true, codes.Unknown: true, codes.DeadlineExceeded: true,
		codes.Internal: true, codes.Unavailable: true, codes.DataLoss: true,
	}
	for c := codes.OK + 1; c <= codes.Unauthenticated; c++ {
		t.Run(c.String(), func(t *testing.T) {
			reason := "Six statuses stand for a lost answer or for a server that failed. All others refuse the request."
			expectLost(t, reason, unknown[c], status.Error(c, "oh"))
			expectLost(t, reason, unknown[c], errors.New(status.Error(c, "oh").Error()))
		})
	}
}

// TestLost_Server has a server carry out a request, and break off its answer.
func TestLost_Server(t *testing.T) {
	cases := map[string]struct {
		reason string
		answer http.HandlerFunc

		// interrupt cancels the client's context once the answer has begun.
		interrupt bool
		want      bool
	}{
		"BeforeHeaders": {
			reason: "The connection broke before the answer began.",
			answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, want: true,
		},
		"InBody": {
			reason: "The connection broke in the middle of the answer.",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				beginAnswer(w)
				panic(http.ErrAbortHandler)
			}, want: true,
		},
		"InBodyOfKnownLength": {
			reason: "The connection broke in the middle of the answer.",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				beginAnswer(w)
				panic(http.ErrAbortHandler)
			}, want: true,
		},
		"Interrupted": {
			reason: "The client did not wait for the rest of the answer.",
			answer: func(w http.ResponseWriter, r *http.Request) {
				beginAnswer(w)
				<-r.Context().Done()
			}, interrupt: true, want: true,
		},
		"HalfAnObject": {
			reason: "An answer that ends too early can't be read, even if the transport finds nothing wrong.",
			answer: func(w http.ResponseWriter, _ *http.Request) { beginAnswer(w) }, want: true,
		},
		"Refused": {
			reason: "The server has refused the request.",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "quota exceeded", http.StatusForbidden)
			},
		},
	}
	for name, tc := range cases {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/HTTP2=%t", name, http2), func(t *testing.T) {
				srv := httptest.NewUnstartedServer(tc.answer)
				srv.EnableHTTP2 = http2
				srv.StartTLS()
				defer srv.Close()
				ctx, interrupt := context.WithCancel(t.Context())
				defer interrupt()

				err := create(ctx, srv, func() {
					if tc.interrupt {
						interrupt()
					}
				})
				expectLost(t, tc.reason, tc.want, err)
			})
		}
	}
}

// beginAnswer sends half an object.
func beginAnswer(w http.ResponseWriter) {
	_, _ = io.WriteString(w, `{"id": "a`)
	_ = http.NewResponseController(w).Flush()
}

// create an external resource as an SDK does. It returns an error.
func create(ctx context.Context, srv *httptest.Server, answered func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL, nil)
	if err != nil {
		return err
	}
	r, err := srv.Client().Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	answered()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", r.Status, body)
	}
	return json.Unmarshal(body, &struct{}{})
}
