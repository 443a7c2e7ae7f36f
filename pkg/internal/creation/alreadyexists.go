package creation

import (
	"regexp"

	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
)

// AlreadyExists reports whether a create failed because the external resource exists: by the
// status of Kubernetes or gRPC, by the code of an SDK's error, such as
// BucketAlreadyOwnedByYou, or by the text.
func AlreadyExists(err error) bool {
	if err == nil {
		return false
	}
	if s, ok := status.FromError(err); kerrors.IsAlreadyExists(err) || ok && s.Code() == codes.AlreadyExists {
		return true
	}
	says := regexp.MustCompile(`(?i)already[ _-]?(exist|owned)`)
	var coded interface{ ErrorCode() string }
	return errors.As(err, &coded) && says.MatchString(coded.ErrorCode()) || says.MatchString(err.Error())
}
