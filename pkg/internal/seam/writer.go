package seam

import (
	"cmp"
	"context"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// storeTimeout bounds one store with all its attempts. The context of the caller does
	// not: it may have ended because the call that returned the external name took too
	// long.
	storeTimeout = 30 * time.Second

	firstStoreDelay = 50 * time.Millisecond
	lastStoreDelay  = 5 * time.Second

	// storeAttempts is how often a write is tried if the next reconcile tries again.
	// resultAttempts is how often a result is tried that is only in memory.
	storeAttempts  = 4
	resultAttempts = 12
)

// A Writer stores annotations without a session. It is safe for concurrent use if its
// clients are.
type Writer struct {
	Client client.Client

	// Live reads from the API server itself.
	Live client.Reader

	// Wait waits, or returns the context's error.
	Wait func(ctx context.Context, d time.Duration) error

	// Attempts is how often a write is tried. The default is 4.
	Attempts int
}

// Store puts exactly these annotations on the API server. It returns the object as the API
// server then has it, or nil if the object no longer exists, and whether nothing but the
// annotations has changed since current.
//
// It may return an object together with an error. With a conflict (IsOverruled) it has
// stored the external name alone. If the API server refuses an annotation (IsRefused) it has
// stored the annotations that identify the external resource.
func (w Writer) Store(
	ctx context.Context, current client.Object, cs Changes, rule Rule, ow Overwrote,
) (server client.Object, followed bool, err error) {
	server, followed, err = w.store(ctx, current, cs, rule, ow)
	if !IsRefused(err) || rule == Decided {
		return server, followed, err
	}
	needed := cs.Needed()
	if len(needed) == 0 || len(needed) == len(cs) {
		return nil, false, err
	}
	server, _, serr := w.store(ctx, current, needed, rule, ow)
	if serr != nil {
		return nil, false, err
	}
	return server, false, err
}

func (w Writer) store(
	ctx context.Context, current client.Object, cs Changes, rule Rule, ow Overwrote,
) (server client.Object, followed bool, err error) {
	var overruler error
	attempts, delay := cmp.Or(w.Attempts, storeAttempts), firstStoreDelay
	followed = true

	// sent is the object after the last write without an answer, which may have been stored.
	var sent client.Object

	for {
		server, err = w.patchAnnotations(ctx, current, cs)

		switch {
		case err == nil:
			return server, followed, overruler
		case rule == Decided && (kerrors.IsConflict(err) || kerrors.IsNotFound(err)):
			return nil, false, err
		case kerrors.IsConflict(err), kerrors.IsNotFound(err), kerrors.IsInvalid(err):
			// The object has changed since current, perhaps by the write without an answer.
			live, lerr := liveState(ctx, w.Live, current)
			if lerr == nil && live == nil {
				return nil, false, nil
			}
			if lerr == nil {
				followed = followed && sent != nil && sameButBookkeeping(sent, live)
				if kerrors.IsInvalid(err) && live.GetResourceVersion() == current.GetResourceVersion() {
					return nil, false, errors.Wrap(err, "cannot store annotations")
				}
				if rule == Decided {
					return nil, false, kerrors.NewConflict(schema.GroupResource{}, current.GetName(), err)
				}
				left, rerr := cs.Left(live, rule, ow)
				if rerr != nil {
					overruler = rerr
				}

				if len(left) == 0 {
					return live, followed, overruler
				}
				current, cs = live, left
			}
		case Permanent(err):
			return nil, false, errors.Wrap(err, "cannot store annotations")
		default:
			sent = clone(current)
			cs.Apply(sent)
		}

		if attempts--; attempts == 0 {
			return nil, false, errors.Wrap(err, "cannot store annotations")
		}
		if werr := w.Wait(ctx, delay); werr != nil {
			return nil, false, errors.Wrap(err, "cannot store annotations")
		}
		delay = min(2*delay, lastStoreDelay)
	}
}

// sameButBookkeeping reports whether a and b differ only in metadata that the API server sets.
func sameButBookkeeping(a, b client.Object) bool {
	a = clone(a)
	bookkeeping(a, b)
	return sameButKind(a, b)
}

func (w Writer) patchAnnotations(ctx context.Context, current client.Object, cs Changes) (client.Object, error) {
	set := make(map[string]any, len(cs))
	for _, c := range cs {
		if set[c.Key] = c.Value; c.Remove {
			set[c.Key] = nil
		}
	}

	body := map[string]any{"metadata": map[string]any{"annotations": set}}
	return writeGuarded(ctx, w.Client.Patch, w.Client.Update, w.Live, current, body, cs.Apply)
}
