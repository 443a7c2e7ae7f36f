package creation

import (
	"testing"

	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A codedError is an error with a code, as SDKs return it. Its text does not have the code.
type codedError string

func (e codedError) Error() string     { return "the request was refused" }
func (e codedError) ErrorCode() string { return string(e) }

// A grpcError has a gRPC status. Its text does not have the code.
type grpcError codes.Code

func (e grpcError) Error() string              { return "the request was refused" }
func (e grpcError) GRPCStatus() *status.Status { return status.New(codes.Code(e), "refused") }

func TestAlreadyExists(t *testing.T) {
	kubernetes := func(reason metav1.StatusReason) error {
		return &kerrors.StatusError{ErrStatus: metav1.Status{Reason: reason, Message: "the request was refused"}}
	}
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Nil":   {reason: "A create that succeeded should not count."},
		"Other": {reason: "Another error should not count.", err: errors.New("quota exceeded")},
		"Text": {
			reason: "The text of an error should count.",
			err:    errors.New("the bucket already exists"),
			want:   true,
		},
		"TextOwned": {
			reason: "The text of an error about the caller's own resource should count.",
			err:    errors.New("BucketAlreadyOwnedByYou: try another name"),
			want:   true,
		},
		"TextUnderscore": {
			reason: "A code in the text of an error should count.",
			err:    errors.New("error 409: ALREADY_EXISTS"),
			want:   true,
		},
		"Code": {
			reason: "The code of an SDK's error should count.",
			err:    errors.Wrap(codedError("ResourceAlreadyExistsException"), "cannot create"),
			want:   true,
		},
		"CodeOther": {
			reason: "Another code of an SDK's error should not count.",
			err:    codedError("LimitExceededException"),
		},
		"GRPC": {
			reason: "The code of a gRPC status should count.",
			err:    errors.Wrap(grpcError(codes.AlreadyExists), "cannot create"),
			want:   true,
		},
		"GRPCOther": {reason: "Another code of a gRPC status should not count.", err: grpcError(codes.NotFound)},
		"Kubernetes": {
			reason: "The reason of a Kubernetes status should count.",
			err:    kubernetes(metav1.StatusReasonAlreadyExists),
			want:   true,
		},
		"KubernetesOther": {
			reason: "Another reason of a Kubernetes status should not count.",
			err:    kubernetes(metav1.StatusReasonConflict),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := AlreadyExists(tc.err); got != tc.want {
				t.Errorf("\n%s\nAlreadyExists(%v): want %t, got %t", tc.reason, tc.err, tc.want, got)
			}
		})
	}
}
