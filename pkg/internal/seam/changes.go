package seam

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MaxExternalName is how many bytes an external name may have. What the API server
// allows all annotations of an object together is 256 KiB.
const MaxExternalName = 4 << 10

// SetAnnotation is the change that sets an annotation of o.
func SetAnnotation(o client.Object, key, value string) Change {
	was, existed := o.GetAnnotations()[key]
	return Change{Key: key, Value: value, Was: was, Existed: existed}
}

// CreateEnded is the change that says when a create of o's ended, in one of upstream's
// annotations external-create-succeeded and -failed. That is never before the create
// was announced, by whosever clock: upstream would take it for one that hasn't ended.
func CreateEnded(o client.Object, key string, at time.Time) Change {
	// Annotations count whole seconds.
	if at.Truncate(time.Second).Before(meta.GetExternalCreatePending(o)) {
		return SetAnnotation(o, key, o.GetAnnotations()[meta.AnnotationKeyExternalCreatePending])
	}
	return SetAnnotation(o, key, at.Format(time.RFC3339))
}

// CheckText returns an error if s is not fit to be put in an annotation, where it
// has to come back as it was: it is empty, not UTF-8, has control characters, or more
// bytes than longest. The error says which of these "it" is.
func CheckText(s string, longest int) error {
	switch {
	case s == "":
		return errors.New("it is empty")
	case len(s) > longest:
		return errors.Errorf("it has %d bytes, and %d is the most", len(s), longest)
	case !utf8.ValidString(s):
		return errors.New("it is not UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("it has control characters")
	}
	return nil
}
