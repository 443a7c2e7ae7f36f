package reconciler

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	kmeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// kindTimeout bounds a read of a kind that isn't known to be late. A cache may have to list the kind first.
	kindTimeout = time.Second

	// syncTimeout is added if the API server answers: then the cache has not synced yet.
	syncTimeout = 3 * time.Second

	// lateKindTimeout bounds a read of a kind that was late. A cache that has synced by now
	// needs no time.
	lateKindTimeout = 50 * time.Millisecond

	// lateFor is how long a kind is known to be late.
	lateFor = time.Minute
)

// lateKinds are the kinds that were not read in time, with the error of each. They are safe
// for concurrent use.
type lateKinds struct {
	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]lateKind
}

type lateKind struct {
	err   error
	until time.Time
}

func (l *lateKinds) get(of schema.GroupVersionKind, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k, ok := l.kinds[of]; ok && now.Before(k.until) {
		return k.err
	}
	return nil
}

// set the error of a kind, or nil if it was read.
func (l *lateKinds) set(of schema.GroupVersionKind, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		delete(l.kinds, of)
		return
	}
	// Users make up kinds.
	maps.DeleteFunc(l.kinds, func(_ schema.GroupVersionKind, k lateKind) bool { return !now.Before(k.until) })
	l.kinds[of] = lateKind{err: err, until: now.Add(lateFor)}
}

// A dependentReader reads for one report. It reads through a cache that may have to
// start to watch a kind, and that does not return if that is forbidden. One kind must
// neither hide the others nor delay each report. So a dependentReader waits for a kind
// once a minute, and reads it with a short timeout in between. It reads from the API
// server to find out why the kind can't be read. It is safe for concurrent use.
type dependentReader struct {
	client.Reader

	// live is nil if there is none.
	live client.Reader

	// watched reports whether the cache watches a kind already. It is nil if that
	// is not known of any.
	watched func(of schema.GroupVersionKind) bool

	late *lateKinds
	now  time.Time

	// named are the kinds that a reference names, rather than the program.
	named sync.Map

	// gaveUp are the kinds that this report won't try again.
	gaveUp lateKinds
}

func newDependentReader(
	c, live client.Reader, watched func(of schema.GroupVersionKind) bool, late *lateKinds, now time.Time,
) *dependentReader {
	return &dependentReader{Reader: c, live: live, watched: watched, late: late, now: now, gaveUp: newLateKinds()}
}

func newLateKinds() lateKinds {
	return lateKinds{kinds: map[schema.GroupVersionKind]lateKind{}}
}

// Get an object.
func (r *dependentReader) Get(
	ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	gvk := o.GetObjectKind().GroupVersionKind()
	return r.read(ctx, gvk,
		func(ctx context.Context) error { return r.Reader.Get(ctx, key, o, opts...) },
		func(ctx context.Context) error {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk)
			return r.live.Get(ctx, key, u)
		})
}

// getReferenced gets an object whose kind was read from a user's reference. The
// reference must not make a cache watch that kind.
func (r *dependentReader) getReferenced(
	ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	gvk := o.GetObjectKind().GroupVersionKind()
	if r.live == nil || r.watched != nil && r.watched(gvk) {
		return r.Get(ctx, key, o, opts...)
	}
	return r.read(ctx, gvk, func(ctx context.Context) error { return r.live.Get(ctx, key, o, opts...) }, nil)
}

// List objects.
func (r *dependentReader) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	gvk := l.GetObjectKind().GroupVersionKind()
	return r.read(ctx, gvk,
		func(ctx context.Context) error { return r.Reader.List(ctx, l, opts...) },
		func(ctx context.Context) error {
			u := &unstructured.UnstructuredList{}
			u.SetGroupVersionKind(gvk)
			return r.live.List(ctx, u, append(opts, client.Limit(1))...)
		})
}

// read a kind with its timeout. If it is late, ask the API server about it.
func (r *dependentReader) read(
	ctx context.Context, of schema.GroupVersionKind, read, ask func(ctx context.Context) error,
) error {
	if of.Empty() {
		// A program's own lister reads objects of Go types.
		return read(ctx)
	}
	if err := r.gaveUp.get(of, r.now); err != nil {
		return err
	}
	known, patience := r.late.get(of, r.now), kindTimeout
	if known != nil {
		patience = lateKindTimeout
	}
	err := within(ctx, patience, read)

	switch {
	case !isLate(err):
		r.late.set(of, nil, r.now)
		return err
	case ctx.Err() != nil:
		// It had less time than is due to it.
		return err
	case known != nil:
		r.gaveUp.set(of, known, r.now)
		return known
	}

	if r.live != nil && ask != nil {
		// An object that is returned is not used: the next report would have to
		// ask for it again.
		switch why := within(ctx, kindTimeout, ask); {
		case kerrors.IsForbidden(why), kmeta.IsNoMatchError(why):
			err = why
		case client.IgnoreNotFound(why) == nil:
			if err = within(ctx, syncTimeout, read); !isLate(err) {
				return err
			}
		}
	}

	r.late.set(of, err, r.now)
	r.gaveUp.set(of, err, r.now)
	return err
}

func within(ctx context.Context, d time.Duration, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return fn(ctx)
}

// isLate reports whether err says that there was no answer in time.
func isLate(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || kerrors.IsTimeout(err)
}
