package managed

import (
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// WithDeletionConfirmation lets a managed resource that is being deleted go only
// when its external resource was not found n times in a row, at least interval
// apart, or when it was not found after a Delete that succeeded. Until then
// nothing is unpublished, the finalizer stays, and the Deleting condition gives
// the reason ConfirmingAbsence.
//
// It is for external systems that sometimes say "not found" of what is there. An
// Observe that finds the external resource, or fails, begins the count anew; so
// does a restart of the provider. What is deleted with its external resource left
// alone (deletionPolicy Orphan, management policies without Delete) is not
// observed, and goes at once.
//
// It costs n-1 more calls of Observe, and (n-1) times interval, for each managed
// resource that is deleted without a Delete of ours. WithDeletionConfirmation
// panics if n is less than 1, or interval is not positive.
func WithDeletionConfirmation(n int, interval time.Duration) ReconcilerOption {
	if n < 1 {
		panic(errors.Errorf("managed.WithDeletionConfirmation was given n = %d: pass how often in a row an external resource must not be found, 1 or more", n))
	}

	if interval <= 0 {
		panic(errors.Errorf("managed.WithDeletionConfirmation was given an interval of %s: pass how long to wait from one observation to the next, more than nothing", interval))
	}

	return func(r *Reconciler) {
		r.config.confirmation = &confirmation{times: n, interval: interval, config: &r.config, absences: map[client.ObjectKey]absence{}}
	}
}

// confirmation keeps a managed resource that is being deleted until its external
// resource is known not to exist. It stands at the external seam, after Observe:
// what it doesn't believe it turns into a conflict, which upstream takes for a
// reason to run the reconcile again, and for no other.
//
// What it knows is only in memory. To forget is safe.
type confirmation struct {
	times    int
	interval time.Duration
	config   *config

	mu       sync.Mutex
	absences map[client.ObjectKey]absence
}

// An absence is what is known of an external resource that should go.
type absence struct {
	uid types.UID

	// times is how often in a row it was not found, and last when that last
	// counted.
	times int
	last  time.Time

	// deleted means that a Delete of ours succeeded.
	deleted bool
}

func (c *confirmation) patch() seam.Patch {
	return seam.Patch{Gone: func(s *seam.Session) {
		c.mu.Lock()
		defer c.mu.Unlock()

		delete(c.absences, s.Key())
	}}
}

// absent returns a conflict if it is yet to be confirmed that the external
// resource doesn't exist.
func (c *confirmation) absent(s *seam.Session, mg resource.Managed) error {
	if c == nil || s == nil || !meta.WasDeleted(mg) || len(blockingFinalizers(mg)) > 0 {
		return nil
	}

	now := s.Now()
	first := false

	a := c.update(mg, func(a *absence) {
		if a.times == 0 || now.Sub(a.last) >= c.interval {
			a.times++
			a.last = now
			first = a.times == 1
		}
	})

	if a.deleted || a.times >= c.times {
		return nil
	}

	if first {
		c.config.record.Event(mg, event.Normal(reasonConfirmingAbsence, messageAbsent))
	}

	s.Reached(seam.PhaseConfirmingAbsence)
	s.RequeueAfter(a.last.Add(c.interval).Sub(now))

	gk := mg.GetObjectKind().GroupVersionKind()

	return kerrors.NewConflict(schema.GroupResource{Group: gk.Group, Resource: gk.Kind}, mg.GetName(), errors.New("it is yet to be confirmed that the external resource does not exist"))
}

// present begins the count anew, since the external resource was found or nobody
// knows.
func (c *confirmation) present(mg resource.Managed, known bool) {
	if c == nil || !meta.WasDeleted(mg) {
		return
	}

	c.mu.Lock()
	had := c.absences[client.ObjectKeyFromObject(mg)]
	c.mu.Unlock()

	if had.uid != mg.GetUID() || had.times == 0 {
		return
	}

	c.update(mg, func(a *absence) { a.times = 0 })

	if known {
		c.config.log.Info("An external resource that was not found is there after all", "uid", mg.GetUID(), "times", had.times)
		c.config.record.Event(mg, event.Warning(reasonFoundAfterAll, errors.New("the external resource was not found before, and is there now")))
	}
}

// deleted notes a Delete that succeeded.
func (c *confirmation) deleted(mg resource.Managed) {
	if c != nil {
		c.update(mg, func(a *absence) { a.deleted = true })
	}
}

func (c *confirmation) update(mg resource.Managed, fn func(a *absence)) absence {
	c.mu.Lock()
	defer c.mu.Unlock()

	k := client.ObjectKeyFromObject(mg)

	a := c.absences[k]
	if a.uid != mg.GetUID() {
		a = absence{uid: mg.GetUID()}
	}

	fn(&a)

	c.absences[k] = a

	return a
}
