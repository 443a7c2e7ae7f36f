package failure

import (
	"fmt"
	"net/http"

	"google.golang.org/grpc/status"
)

// These errors have the fields and methods of errors that SDKs return.
type (
	// methodError has a method for the HTTP status, as the errors of SDKs for AWS.
	methodError struct {
		code  int
		cause error
	}

	// fieldError has a field for the HTTP status, as the errors of SDKs for Azure.
	fieldError struct {
		StatusCode int
		body       string
	}

	// codeError has a field for a code, as the errors of SDKs for Google Cloud.
	codeError struct {
		Code  int
		text  string
		cause error
	}

	// responseError has a field for the response, as the errors of SDKs for GitHub, DigitalOcean and Linode.
	responseError struct {
		Response *http.Response
		text     string
	}

	// methodCodeError is an error of a client that go-swagger generates. Its cause has no type.
	methodCodeError struct{ code int }

	// anyFieldError has a field of any type for the HTTP status, as autorest's.
	anyFieldError struct {
		StatusCode any
		Original   error
	}

	// timeoutError has only one of the methods of net.Error, as fasthttp's.
	timeoutError struct{}

	// multiError is an error of go-multierror, whose Unwrap does not return the first error.
	multiError []error

	// lostError has a method that needs a response.
	lostError struct {
		response *http.Response
		text     string
	}

	// nilError has methods that read their receiver.
	nilError struct{ StatusCode int }

	// statusless could have a gRPC status and has none.
	statusless struct{ error }

	// azcore's
	azureError struct {
		ErrorCode   string
		StatusCode  int
		RawResponse *http.Response
	}

	// smithy-go's and the AWS SDK's
	smithyResponse struct{ *http.Response }
	SmithyError    struct {
		Response *smithyResponse
		Err      error
	}
	awsError struct {
		*SmithyError
		RequestID string
	}
	awsCode string

	// AWS's first SDK's
	awsV1Error struct {
		code, text string
		status     int
		cause      error
	}

	// googleapi's
	googleError struct {
		Code   int
		Header http.Header
		Errors []googleItem
		text   string
	}
	googleItem struct{ Reason string }

	statusError int

	// gRPC's, with details
	grpcError struct{ s *status.Status }

	// Alibaba Cloud's
	teaError struct {
		Code       *string
		StatusCode *int
	}

	// go-autorest's
	serviceError  struct{ Code, Message string }
	autorestError struct {
		Response     *http.Response
		ServiceError *serviceError
	}

	// aggregate is Kubernetes'.
	aggregate []error

	// Connect's and gRPC's codes are numbers with names. Twirp's are texts.
	rpcCode         uint32
	rpcError[T any] struct{ code T }

	// listError has several codes and a list without reasons.
	listError struct {
		Errors           []string
		Code, StatusCode int
		ErrorCode        string
	}

	// OpenStack's
	actualError struct{ Actual int }
)

func (e methodError) Error() string             { return fmt.Sprintf("StatusCode: %d: %v", e.code, e.cause) }
func (e methodError) HTTPStatusCode() int       { return e.code }
func (e methodError) Unwrap() error             { return e.cause }
func (e *fieldError) Error() string             { return e.body }
func (e codeError) Error() string               { return e.text }
func (e codeError) Unwrap() error               { return e.cause }
func (e responseError) Error() string           { return e.text }
func (e *methodCodeError) Error() string        { return "createVMDefault" }
func (e *methodCodeError) Code() int            { return e.code }
func (e *methodCodeError) IsCode(code int) bool { return e.code == code }
func (e anyFieldError) Error() string           { return fmt.Sprintf("vms#Create: Failure: %v", e.Original) }
func (e anyFieldError) Unwrap() error           { return e.Original }
func (*timeoutError) Error() string             { return "timeout" }
func (*timeoutError) Timeout() bool             { return true }
func (e *lostError) Error() string              { return e.text }
func (e *lostError) HTTPStatusCode() int        { return e.response.StatusCode }
func (*nilError) Error() string                 { return "quota exceeded" }

func (statusless) GRPCStatus() *status.Status { return nil }

func (m multiError) Error() string          { return "2 errors occurred" }
func (m multiError) WrappedErrors() []error { return m }
func (m multiError) Unwrap() error {
	if len(m) == 1 {
		return nil
	}
	return m[1:]
}

func (e *SmithyError) HTTPStatusCode() int {
	if e.Response == nil {
		return 0
	}
	return e.Response.StatusCode
}

func (e *azureError) Error() string            { return "azure" }
func (e *SmithyError) Error() string           { return "smithy" }
func (e *SmithyError) Unwrap() error           { return e.Err }
func (e *awsError) Error() string              { return "aws" }
func (e *awsError) Unwrap() error              { return e.SmithyError }
func (e awsCode) Error() string                { return "api error " + string(e) }
func (e awsCode) ErrorCode() string            { return string(e) }
func (e awsV1Error) Error() string             { return e.text }
func (e awsV1Error) Code() string              { return e.code }
func (e awsV1Error) StatusCode() int           { return e.status }
func (e awsV1Error) OrigErr() error            { return e.cause }
func (e *googleError) Error() string           { return "google: " + e.text }
func (e statusError) Error() string            { return "status" }
func (e statusError) StatusCode() int          { return int(e) }
func (e grpcError) Error() string              { return "grpc" }
func (e grpcError) GRPCStatus() *status.Status { return e.s }
func (e *teaError) Error() string              { return "SDKError" }
func (e *autorestError) Error() string         { return "autorest" }
func (a aggregate) Error() string              { return "aggregate" }
func (a aggregate) Errors() []error            { return a }
func (c rpcCode) String() string {
	return map[rpcCode]string{3: "invalid_argument", 6: "already_exists", 14: "unavailable"}[c]
}
func (e rpcError[T]) Error() string { return "name 502 Bad Gateway is taken" }
func (e rpcError[T]) Code() T       { return e.code }
func (e listError) Error() string   { return "invalid" }
func (e actualError) Error() string { return "unexpected" }
