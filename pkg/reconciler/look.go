package reconciler

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	kmeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/deletion"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

const (
	// lookTimeout bounds one look at the dependents of an object.
	lookTimeout = 5 * time.Second

	// readTimeout bounds one read. A cache that can't get a kind never answers.
	readTimeout = time.Second

	// lateFor is how long something is not read again that was not read in time.
	lateFor = time.Minute
)

// errLate is the error of a read that takes too long.
var errLate = errors.New("not read in time")

// observe looks once at o's dependents. It never fails: the observation has the error.
func observe(ctx context.Context, r dependentReader, l DependentLister, o client.Object) observation {
	unread := observation{unknown: "they were " + errLate.Error()}
	if r.late.get(o.GetUID(), r.now) != nil {
		return unread
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()

	on, late, unknown := observation{}, map[schema.GroupVersionKind]bool{}, []string{}
	list, err := l.ListDependents(ctx, r, o)
	if err != nil {
		unknown = append(unknown, unreadable(err))
	}

	seen := map[Dependent]bool{}
	for _, d := range list {
		had := seen[d]
		if seen[d] = true; had || late[d.GroupVersionKind] || ctx.Err() != nil {
			continue
		}
		b, err := r.blocker(ctx, d, l, o)
		switch {
		case errors.Is(err, errLate):
			late[d.GroupVersionKind] = true
			unknown = append(unknown, deletion.Cut(oneLine(d.Kind), maxKindLength)+" "+errLate.Error())
		case b != nil:
			on.blockers = append(on.blockers, *b)
		}
	}
	if ctx.Err() != nil {
		// The dependents that were read depend on the time that each read took.
		r.late.set(o.GetUID(), errLate, r.now)
		return unread
	}

	on.total, on.unknown = len(seen), deletion.Names(unknown)
	on.blockers = slices.DeleteFunc(on.blockers, func(b blocker) bool { return late[b.GroupVersionKind] })
	slices.SortStableFunc(on.blockers, byUrgency)
	return on
}

// A dependentReader reads for one look. A cache may have to start to watch a kind, and never answers if that is
// forbidden. One kind must neither hide the others nor delay each look, so a kind that is late is not read for a
// minute. The API server says why it is, if it is forbidden or missing.
type dependentReader struct {
	client.Reader

	// live is nil if there is none.
	live client.Reader

	// watched reports whether the cache watches a kind already. It is nil if that is not known of any.
	watched func(of schema.GroupVersionKind) bool

	late *lateReads
	now  time.Time
}

// Get an object.
func (r dependentReader) Get(
	ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	return r.read(ctx, o, func(ctx context.Context, from client.Reader) error { return from.Get(ctx, key, o, opts...) })
}

// List objects.
func (r dependentReader) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return r.read(ctx, l, func(ctx context.Context, from client.Reader) error { return from.List(ctx, l, opts...) })
}

// getReferenced gets an object whose kind was read from a user's reference. The reference must not make a cache watch
// that kind.
func (r dependentReader) getReferenced(ctx context.Context, key client.ObjectKey, o client.Object) error {
	if r.live != nil && (r.watched == nil || !r.watched(o.GetObjectKind().GroupVersionKind())) {
		r.Reader, r.live = r.live, nil
	}
	return r.Get(ctx, key, o)
}

func (r dependentReader) read(
	ctx context.Context, o runtime.Object, read func(ctx context.Context, from client.Reader) error,
) error {
	of := o.GetObjectKind().GroupVersionKind()
	if err := r.late.get(of, r.now); err != nil {
		return err
	}
	within := func(from client.Reader) error {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		return read(ctx, from)
	}
	err := within(r.Reader)

	// The look may have ended before the read had its time, and objects of Go types have no kind.
	if !isLate(err) || ctx.Err() != nil || of.Empty() {
		return err
	}
	err = errLate
	if r.live != nil {
		if why := within(r.live); kerrors.IsForbidden(why) || kmeta.IsNoMatchError(why) {
			err = why
		}
	}
	r.late.set(of, err, r.now)
	return err
}

// isLate reports whether err says that there was no answer in time. A client's own limiter refuses a request that could
// not be sent in time.
func isLate(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || kerrors.IsTimeout(err) ||
		err != nil && strings.Contains(err.Error(), "would exceed context deadline")
}

// blocker returns why a dependent of o still exists, or nil if it doesn't. An error is why it could not be read, which
// the blocker says, too.
func (r dependentReader) blocker(
	ctx context.Context, d Dependent, l DependentLister, o client.Object,
) (*blocker, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(d.GroupVersionKind)
	var err error
	if d.Owner != "" {
		err = r.getReferenced(ctx, d.NamespacedName, u)
	} else {
		err = r.Get(ctx, d.NamespacedName, u)
	}

	switch {
	case seam.IsGone(err):
		return nil, nil //nolint:nilnil // It doesn't exist.
	case err != nil:
		return &blocker{Dependent: d, why: "unknown: " + unreadable(err), urgency: urgencyStuck}, err
	}

	return d.blocker(l, o, u), nil
}

// lateReads has the errors of what was not read in time: of kinds, and of the UIDs of objects with too many dependents.
// It is safe for concurrent use.
type lateReads struct {
	mu    sync.Mutex
	reads map[any]lateRead
}

type lateRead struct {
	err   error
	until time.Time
}

// get returns the error of a late read of the last minute, or nil.
func (l *lateReads) get(key any, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.reads[key]; now.Before(r.until) {
		return r.err
	}
	return nil
}

func (l *lateReads) set(key any, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reads == nil {
		l.reads = map[any]lateRead{}
	}
	// Users make up kinds.
	maps.DeleteFunc(l.reads, func(_ any, r lateRead) bool { return !now.Before(r.until) })
	l.reads[key] = lateRead{err: err, until: now.Add(lateFor)}
}
