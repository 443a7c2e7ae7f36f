package managed

import (
	"context"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// announcements is the patch that tells one create from the next. Upstream announces
// a create, and says how it ended, in annotations that count whole seconds. A create
// that is announced in the second in which the last one ended looks as if it had
// ended, too: if the process dies in it, upstream creates again instead of stopping.
// So what ended before an announcement is always said to be earlier.
func announcements() seam.Patch {
	return seam.Patch{Write: func(_ context.Context, s *seam.Session, o client.Object) {
		// Within a second an announcement looks the same as the one before. Once
		// the external resource was not found, upstream writes the whole object to
		// add its finalizer, to announce the create, and to say how it ended.
		if s.Announced || s.Phase != seam.PhaseObservedAbsent || !slices.Equal(o.GetFinalizers(), s.Base().GetFinalizers()) {
			return
		}

		s.Announced = true

		pending, last := meta.GetExternalCreatePending(o), lastCreateEnded(o)
		if pending.IsZero() || pending.After(last) {
			return
		}

		before := pending.Add(-time.Second)

		if !meta.GetExternalCreateSucceeded(o).Before(pending) {
			meta.SetExternalCreateSucceeded(o, before)
		}

		if !meta.GetExternalCreateFailed(o).Before(pending) {
			meta.SetExternalCreateFailed(o, before)
		}
	}}
}

// lastCreateEnded returns when the last create of an object ended, as upstream sees
// it.
func lastCreateEnded(o metav1.Object) time.Time {
	succeeded, failed := meta.GetExternalCreateSucceeded(o), meta.GetExternalCreateFailed(o)
	if failed.After(succeeded) {
		return failed
	}

	return succeeded
}
