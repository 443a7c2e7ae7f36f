package creation

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/store"
)

// FirstSeen remembers when this process first saw a create in its state, because the clock of
// the process that wrote the state may be wrong. After a restart the time begins again. The
// zero value is ready to use.
type FirstSeen struct{ key store.Key[seen] }

type seen struct {
	id string
	at time.Time
}

// At returns when this process first saw the create of o in state s: now, if it sees it for the
// first time.
func (f *FirstSeen) At(st *store.Store, o client.Object, s State, now time.Time) time.Time {
	return f.key.Update(st, o, func(v *seen) {
		if id := s.ID(); v.id != id || v.at.IsZero() {
			*v = seen{id: id, at: now}
		}
	}).at
}

// Forget the create of o, whose outcome is known.
func (f *FirstSeen) Forget(st *store.Store, o client.Object) { f.key.Delete(st, o) }
