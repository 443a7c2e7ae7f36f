package asyncstate

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

	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/pkg/internal/limit"
)

// A requestOutcome is the outcome of a request, as far as its error shows it.
type requestOutcome int

const (
	// outcomeNotSaid means that the error says nothing about a request.
	outcomeNotSaid requestOutcome = iota

	// refused means that the external system refused the request.
	refused

	// notShown means that the external system answered "not found": the operation is not listed
	// yet, or was forgotten.
	notShown

	// notServed means that the request was never sent, or that its answer says nothing about an
	// operation: the caller has to log in, is throttled or forbidden.
	notServed

	// maybeCarriedOut means that the request may have been carried out.
	maybeCarriedOut
)

// requestOutcomeOf returns what err says about a request. An error of a transport or an SDK decides
// before its causes do. Otherwise the causes decide, and at last the text: many SDKs quote
// their cause and don't wrap it.
func requestOutcomeOf(err error) requestOutcome {
	if err == nil {
		return outcomeNotSaid
	}
	if limit.IsMark(err) || errors.Is(err, errNotStarted) {
		return notServed
	}
	if o := outcomeByGRPC(err); o != outcomeNotSaid {
		return o
	}
	if o := outcomeByHTTP(httpStatus(err)); o != outcomeNotSaid {
		if limit.Judge(err, time.Now()).Refused {
			// Some of AWS's services throttle with a code, and HTTP 503.
			return notServed
		}
		if o == refused && unservedCode.MatchString(limit.Code(err)) {
			return notServed
		}
		return o
	}
	if o := outcomeByType(err); o != outcomeNotSaid {
		return o
	}
	causes := outcomeByCauses(err)
	if u, ok := err.(*url.Error); ok { //nolint:errorlint // The causes were looked at.
		return outcomeByURL(u, causes)
	}
	if causes != outcomeNotSaid {
		return causes
	}
	// Some errors have only this method of net.Error.
	if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
		return maybeCarriedOut
	}
	return outcomeByText(err.Error())
}

// outcomeByCauses returns the worst that the wrapped errors of err say.
func outcomeByCauses(err error) requestOutcome {
	worst := outcomeNotSaid
	for _, cause := range limit.Causes(err) {
		if cause != nil {
			worst = max(worst, requestOutcomeOf(cause))
		}
	}
	return worst
}

// outcomeByGRPC decides by the gRPC status of err itself. Canceled, DeadlineExceeded,
// Unavailable and Internal are also the client's own statuses for a call without an answer.
// Unknown stands for the HTTP status 500 of a proxy.
func outcomeByGRPC(err error) requestOutcome {
	with, ok := err.(interface{ GRPCStatus() *status.Status })
	if !ok || isNil(err) || with.GRPCStatus() == nil {
		return outcomeNotSaid
	}
	switch s := with.GRPCStatus(); s.Code() { //nolint:exhaustive // All others are answers.
	case codes.OK:
		return outcomeNotSaid
	case codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.Internal, codes.Unavailable, codes.DataLoss:
		return maybeCarriedOut
	case codes.NotFound:
		return notShown
	case codes.PermissionDenied, codes.Unauthenticated:
		return notServed
	case codes.ResourceExhausted:
		// The answer to a successful call may be larger than the client accepts.
		if strings.Contains(s.Message(), "received message") && strings.Contains(s.Message(), "larger than max") {
			return maybeCarriedOut
		}
		return notServed
	}
	return refused
}

// outcomeByHTTP decides by an HTTP status. If an error has the status of a success, the client
// could not read the answer.
func outcomeByHTTP(code int) requestOutcome {
	const clientClosedRequest = 499 // nginx
	switch {
	case code == http.StatusRequestTimeout, code == clientClosedRequest:
		return maybeCarriedOut
	case code == http.StatusNotFound, code == http.StatusGone:
		return notShown
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusProxyAuthRequired,
		code == http.StatusTooManyRequests:
		return notServed
	case code >= 400 && code < 500, code == http.StatusNotImplemented:
		return refused
	case code >= 200 && code < 300, code >= 500 && code < 600:
		return maybeCarriedOut
	default:
		return outcomeNotSaid
	}
}

// unservedCodes match AWS's codes for refused credentials and for "not found". Their HTTP status
// may be 400.
const unservedCodes = `expired|accessdenied|(un|not)authorized|authfailure|unrecognizedclient|` +
	`invalid(client|identity)?token|invalidaccesskey|invalidgrant|missingauthenticationtoken|` +
	`signaturedoesnotmatch|invalidsignature|incompletesignature|idpcommunicationerror|` +
	`not_?found|nosuch|(does|did)notexist`

var unservedCode = regexp.MustCompile(`(?i)` + unservedCodes)

// httpStatus returns the HTTP status in err itself, or 0. SDKs have no common interface for
// it: those for AWS and Kubernetes have methods, those for Azure, Google Cloud and GitHub fields.
func httpStatus(err error) (code int) {
	if isNil(err) {
		return 0
	}
	defer func() {
		// Methods of SDKs' errors may panic if there was no response.
		if p := recover(); p != nil {
			code = 0
		}
	}()
	switch e := err.(type) { //nolint:errorlint // Causes are visited by outcomeByCauses.
	case kerrors.APIStatus:
		return int(e.Status().Code)
	case interface{ HTTPStatusCode() int }:
		return e.HTTPStatusCode()
	case interface{ GetHTTPStatusCode() int }:
		return e.GetHTTPStatusCode()
	case interface{ GetStatusCode() int }:
		return e.GetStatusCode()
	case interface{ StatusCode() int }:
		return e.StatusCode()
	case interface{ Code() int }: // Clients that go-swagger generates.
		if isFailure(int64(e.Code())) {
			return e.Code()
		}
	}

	v := reflect.Indirect(reflect.ValueOf(err))
	if v.Kind() != reflect.Struct {
		return 0
	}
	for _, name := range []string{
		"StatusCode", "HTTPStatusCode", "Code", "Response", "HTTPResponse", "RawResponse", "Resp",
	} {
		at, ok := v.Type().FieldByName(name)
		if !ok || !at.IsExported() {
			continue
		}
		// The error of an embedded pointer that is nil is about a field that is not there.
		field, ferr := v.FieldByIndexErr(at.Index)
		if ferr != nil {
			continue
		}
		if r, ok := field.Interface().(*http.Response); ok && r != nil {
			return r.StatusCode
		}
		if field.Kind() == reflect.Interface {
			field = field.Elem()
		}
		if n := reflect.Indirect(field); n.CanInt() && (isFailure(n.Int()) || name != "Code" && n.Int() != 0) {
			return int(n.Int())
		}
	}
	return 0
}

// isFailure reports whether a code is the HTTP status of a failure. Codes of an external
// system's own are not HTTP statuses, and a code is no success.
func isFailure(code int64) bool { return code >= 400 && code < 600 }

// isNil reports whether err is a nil pointer, whose methods may panic.
func isNil(err error) bool {
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// outcomeByType decides by the type of err itself. Nothing is sent before a connection
// is made, and before the certificate of the server is verified.
func outcomeByType(err error) requestOutcome {
	switch e := err.(type) { //nolint:errorlint // Causes are visited by outcomeByCauses.
	case *net.OpError:
		if e.Op == "dial" || e.Op == "proxyconnect" {
			return notServed
		}
		return maybeCarriedOut
	case *net.DNSError, *tls.CertificateVerificationError, tls.RecordHeaderError,
		x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		return notServed
	case flate.CorruptInputError:
		return maybeCarriedOut
	}

	lostAnswers := []error{
		context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
		syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, gzip.ErrHeader, gzip.ErrChecksum,
	}
	if slices.Contains(lostAnswers, err) {
		return maybeCarriedOut
	}
	return outcomeNotSaid
}

// outcomeByURL returns the outcome of an error of package net/http. causes is the outcome of its
// causes. If they are not known, the request may have been sent. If they have an HTTP status, a
// server that issues tokens has sent it: net/http returns no error for an answer to the request.
func outcomeByURL(u *url.Error, causes requestOutcome) requestOutcome {
	switch causes {
	case outcomeNotSaid:
	case maybeCarriedOut:
		return maybeCarriedOut
	default:
		return notServed
	}
	if u.Op == "parse" || u.Err == nil || unsentText.MatchString(u.Err.Error()) {
		return notServed
	}
	return maybeCarriedOut
}

// unsentText matches the errors that net/http returns before it sends a request.
var unsentText = regexp.MustCompile(`^(unsupported protocol scheme|http: no Host in request URL|http: nil Request|` +
	`net/http: (invalid|nil|TLS handshake timeout)|http: server gave HTTP response to HTTPS client|tls: failed to verify certificate|x509: )`)

// outcomeByText decides by the text of an error alone. A text may quote several errors. One
// lost answer among them is enough.
func outcomeByText(text string) requestOutcome {
	if lostAnswerText.MatchString(undialedText.ReplaceAllString(text, "")) {
		return maybeCarriedOut
	}
	for _, at := range quotedURLError.FindAllStringIndex(text, -1) {
		if cause := text[at[1]:]; !unsentText.MatchString(cause) && !answeredText.MatchString(cause) {
			return maybeCarriedOut
		}
	}
	if undialedText.MatchString(text) || quotedURLError.MatchString(text) {
		return notServed
	}
	return outcomeNotSaid
}

// unservedText matches the texts of answers that say nothing about an operation. A request that got
// such a text after a lost answer may have been carried out, so only an operation's polls are judged
// by it.
var unservedText = regexp.MustCompile(`(?i)code = (unauthenticated|permissiondenied|notfound|resourceexhausted)\b|` +
	`(` + statusText + `|\b(googleapi: Error|RESPONSE) )(401|403|404|407|410|429)\b|` +
	`\bapi error [\w.]*(` + unservedCodes + `)`)

// loginText matches the texts of SDKs that could not log in, for any reason. They do not send the
// request then.
var loginText = regexp.MustCompile(`\bget (identity|credentials): |failed to refresh cached credentials|` +
	`failed to retrieve (jwt|credentials)|\bNoCredentialProviders\b|` +
	`\b[A-Z]\w+Credential(:| authentication failed)|\boauth2: `)

// quotedURLError matches the begin of the text of a url.Error, up to its cause.
var quotedURLError = regexp.MustCompile(`\b(Get|Head|Post|Put|Patch|Delete) "[^"\s]+": `)

// answeredText matches causes in the text of a url.Error that are no lost answers: no connection was
// made, or a server has refused the request.
var answeredText = regexp.MustCompile(`^(dial |proxyconnect |oauth2: |4\d\d )`)

// undialedText matches the text of a connection that was not made.
var undialedText = regexp.MustCompile(`dial (tcp|udp)\d?( \S+)?:` +
	`( lookup \S+( on \S+)?:( (dial|read|write) udp\d?( \S+)?:)?)?` +
	` (i/o timeout|operation was canceled|connect: [a-z ]+)`)

// statusText matches the words before an HTTP status.
const statusText = `(status[\W_]{0,3}(code[\W_]{0,3})?|\bcode\W{0,3}|\bhttp(/\d(\.\d)?)?\W{1,3})`

// failedStatusText matches the HTTP statuses of servers that may have carried the request out.
const failedStatusText = `(408|499|5(0[02-9]|1[01]|2\d|30|9[89]))\b`

// lostAnswerText matches the texts of timeouts, of lost connections, and of servers that failed.
var lostAnswerText = regexp.MustCompile(`(?i)` +
	`context deadline exceeded|context canceled|request canceled|operation was canceled|` +
	`timed out|timeout (while )?waiting|i/o timeout|timeout awaiting|client\.timeout|request ?timeout|` +
	`no recent network activity|` +
	`\bEOF\b|unexpected end of JSON input|malformed (http|chunked)|gzip: invalid|flate: corrupt|zlib: invalid|` +
	`closed (response )?body|received message( after decompression)? larger than max|` +
	`connection reset|connection abort|broken pipe|closed network connection|forcibly closed|server closed|` +
	`connection lost|connection broken|connection force closed|connection error: [A-Z_]+\b|` +
	`\b(read|write) tcp\d? \S+: |(local|remote) error: tls|` +
	`GOAWAY|stream error|http2: |\bH3_[A-Z]|\bH3 error|application error 0x|stream \d+ cancell?ed by |` +
	`code = (canceled|unknown|deadlineexceeded|internal|unavailable|dataloss)\b|` +
	`internal server error|bad gateway|service unavailable|gateway time-?out|internal error occurred|` +
	statusText + failedStatusText +
	`|\]\[` + failedStatusText + `|` +
	`\b(error|response)\W{0,3}(code\W{0,3})?5(0[0234]|2\d)\b`)
