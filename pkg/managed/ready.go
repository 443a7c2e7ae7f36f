package managed

import (
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// readyConditions records the Ready conditions that this process has written to managed
// resources that are being deleted.
type readyConditions struct {
	store *store.Store
	last  store.Key[[2]xpv2.Condition]
}

// expect records that cs are about to be written. The write may fail.
func (r *readyConditions) expect(server client.Object, cs []xpv2.Condition) {
	r.last.Update(r.store, server, func(last *[2]xpv2.Condition) {
		if !last[0].Equal(cs[0]) {
			*last = [2]xpv2.Condition{cs[0], last[0]}
		}
	})
}

// foreign reports whether another writer has written the Ready condition of an object whose
// deletion was reported.
func (r *readyConditions) foreign(server client.Object) bool {
	ready, deleting := seam.ConditionOf(server, xpv2.TypeReady).WithObservedGeneration(0), deletion.ConditionOf(server)
	if ready.Reason == "" || deleting.Status != corev1.ConditionTrue {
		return false
	}
	if ready.Equal(xpv2.Deleting().WithMessage(deleting.Message)) {
		// Only Graft writes both with one message. A passed deadline and force orphan write
		// them without expect.
		return false
	}
	last := r.last.Get(r.store, server)
	if last[0].Type == "" {
		// Another process may have written it.
		return ready.Reason != xpv2.ReasonDeleting
	}
	return !ready.Equal(last[0]) && !ready.Equal(last[1])
}
