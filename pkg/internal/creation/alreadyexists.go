package creation

import (
	"regexp"

	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
)

// alreadyExistsText matches the codes and texts of errors about an existing resource.
var alreadyExistsText = regexp.MustCompile(`(?i)already[ _-]?(exist|owned)`)

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
	var coded interface{ ErrorCode() string }
	return errors.As(err, &coded) && alreadyExistsText.MatchString(coded.ErrorCode()) ||
		alreadyExistsText.MatchString(err.Error())
}
