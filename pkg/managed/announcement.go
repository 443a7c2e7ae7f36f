package managed

import (
	"context"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// announcements tells one create from the next. Upstream announces a create, and
// says how it ended, in annotations that count whole seconds. A create that is
// announced in the second in which the last one ended looks as if it had ended, too:
// if the process dies in it, upstream creates again instead of stopping. So the end
// of an earlier create is always said to be earlier than the announcement.
type announcements struct {
	// expected is true once upstream is about to announce a create.
	expected seam.Slot[bool]
}

func newAnnouncements(parts) layer {
	a := &announcements{}
	return layer{
		external: func(next external) external { return &announcedExternal{external: next, announcements: a} },
		patch:    seam.Patch{Write: a.write},
	}
}

type announcedExternal struct {
	external

	announcements *announcements
}

// Observe the external resource. If it does not exist, and the management policies
// allow that, upstream creates it next.
func (e *announcedExternal) Observe(ctx context.Context, c *call) (observation, error) {
	o, err := e.external.Observe(ctx, c)
	if err == nil && !o.ResourceExists && seam.Allows(c.mg, xpv2.ManagementActionCreate) {
		*e.announcements.expected.In(c.Session) = true
	}
	return o, err
}

func (a *announcements) write(_ context.Context, s *seam.Session, o client.Object) {
	expected := a.expected.Find(s)

	// Before the announcement upstream writes the whole object to add its
	// finalizer; after it, to say how the create ended.
	if expected == nil || !*expected || !slices.Equal(o.GetFinalizers(), s.Base().GetFinalizers()) {
		return
	}
	*expected = false
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
