package asyncstate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

const (
	// storeAttempts is how often a write is tried while other writers change the same annotations.
	storeAttempts = 4

	// storeTimeout bounds one attempt to store something, stoppingStoreTimeout while the
	// process stops.
	storeTimeout         = 30 * time.Second
	stoppingStoreTimeout = 5 * time.Second

	// maxHandle is how many bytes a handle may have. The API server allows 256 KiB for all
	// annotations of an object together.
	maxHandle = 32 << 10
)

// A storedRecord is the record of an operation on the API server, with the annotations that the
// operation sets. It is safe for concurrent use.
type storedRecord struct {
	writer   seam.Writer
	events   eventRecorder
	shutdown *shutdown

	// object as it was when the operation began. It is never changed.
	object client.Object

	// storing has one element while a write is in progress.
	storing chan struct{}

	// mu is never held during a request.
	mu sync.Mutex

	// record on the API server.
	record *creation.Record

	// version of the object that the last write led to.
	version string

	// annotations holds annotations to be stored. tried holds the values of earlier
	// requests, which the API server may have stored.
	annotations map[string]string
	tried       map[string][]string

	// handle is to be stored, unless it is empty.
	handle string
}

func newStoredRecord(c config, s *shutdown, o client.Object, r *creation.Record) *storedRecord {
	return &storedRecord{
		writer: c.writer, events: c.events, shutdown: s, object: o, record: r,
		storing: make(chan struct{}, 1), annotations: map[string]string{}, tried: map[string][]string{},
	}
}

// snapshot returns the record on the API server. It must not be changed.
func (s *storedRecord) snapshot() *creation.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

// prepare changes annotations and the handle, which the next write stores. That may be the one of the result.
func (s *storedRecord) prepare(fn func(s *storedRecord)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(s)
}

// current returns a copy of the record with the handle that is set. The caller holds mu.
func (s *storedRecord) current() creation.Record {
	r := *s.record
	r.Handle = cmp.Or(s.handle, r.Handle)
	return r
}

// name returns the external name that the operation itself has set, or none.
func (s *storedRecord) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.annotations[meta.AnnotationKeyExternalName], s.record.Name)
}

// withEnding returns the record of the operation with its end.
func (s *storedRecord) withEnding(end ending) *creation.Record {
	name := s.name()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.current()
	return failedRecord(&r, end.err, name, end.at)
}

// withStoreTimeout returns a context for one attempt to store something. It is not cancelled with
// the operation, whose external name must not be lost.
func (s *storedRecord) withStoreTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := storeTimeout
	if s.shutdown.stopping.Err() != nil {
		timeout = stoppingStoreTimeout
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// update stores the record that mutate returns, in changes, together with the annotations that the operation sets: one
// write, for which precedence says whose values win. It returns the object as the API server then has it.
//
// The error is errGone if the object no longer exists, and errOverruled if another writer has the record. An object
// together with another error means that the API server has refused annotations, and has stored the record and the
// name.
func (s *storedRecord) update(
	ctx context.Context, mutate func(r *creation.Record) (creation.Changes, error),
) (client.Object, error) {
	ctx, cancel := s.withStoreTimeout(ctx)
	defer cancel()
	select {
	case s.storing <- struct{}{}: // No other write is in progress.
		defer func() { <-s.storing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	s.mu.Lock()
	r, about := s.current(), contest{record: "own", result: "other"}
	if r.Type == creation.Create && !r.Abandoned {
		about.result = "create"
	}
	recorded, err := mutate(&r)
	cs := slices.Concat(recorded.Changes, s.changes())
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}

	server, err := s.store(ctx, cs, about)
	s.mu.Lock()
	defer s.mu.Unlock()
	if server != nil && !errors.Is(err, errOverruled) {
		s.record, s.version = &r, server.GetResourceVersion()
	} else if seam.Permanent(err) && s.handle == r.Handle {
		s.handle = "" // Its result must still be stored.
	}
	return server, err
}

// changes returns the annotations to be stored beside the record. The caller holds mu.
func (s *storedRecord) changes() seam.Changes {
	var cs seam.Changes
	for _, k := range slices.Sorted(maps.Keys(s.annotations)) {
		c := seam.SetAnnotation(s.object, k, s.annotations[k])
		if !slices.Contains(s.tried[k], c.Value) {
			s.tried[k] = append(s.tried[k], c.Value)
		}
		cs = append(cs, c)
	}
	return cs
}

// store the changes that win against another writer's. They are compared with the live object, because only the
// writer of a record may replace it.
func (s *storedRecord) store(ctx context.Context, cs seam.Changes, about contest) (client.Object, error) {
	for attempt := 1; ; attempt++ {
		live, err := s.read(ctx, s.writer.Live)
		switch {
		case seam.IsGone(err), err == nil && live.GetUID() != s.object.GetUID():
			return nil, errGone
		case err != nil:
			return nil, errors.Wrap(err, "cannot read the object")
		}
		won, replaced, overruled := s.contested(cs, live, about)

		// No other writer's value is left to compare with: the rule is only about changes since then.
		server := live
		if won, _ = won.Left(live, seam.Observed, nil); len(won) > 0 {
			server, _, err = s.writer.Store(ctx, live, won, seam.Observed, nil)
		}
		switch {
		case seam.IsOverruled(err) && attempt < storeAttempts:
			continue
		case seam.IsOverruled(err):
			return nil, err
		case server == nil && err == nil:
			return nil, errGone
		case seam.IsRefused(err) && len(won.Needed()) == 0:
			server = live // The record and the name were stored before.
		}
		if server != nil && replaced != nil {
			s.events.overwrote(s.object, *replaced)
		}
		if err == nil {
			err = overruled
		}
		return server, err
	}
}

// contested returns the changes that win against the values of live, the one that replaces another writer's external
// name, and errOverruled if another writer has the record.
func (s *storedRecord) contested(
	cs seam.Changes, live client.Object, about contest,
) (won seam.Changes, replaced *seam.Change, overruled error) {
	if !s.owns(live) {
		about.record, overruled = "other", errOverruled
	}
	for _, c := range cs {
		about := about.about(c, live, s.wasTried)
		there := seam.SetAnnotation(live, c.Key, c.Value)
		c.Was, c.Existed = there.Was, there.Existed
		switch {
		case about.wins():
			if won = append(won, c); about.annotation == "name" && about.there == "changed" {
				replaced = &c
			}
		case overruled == nil:
			s.events.log.Info("Another writer set an annotation that the operation sets, too; it is kept",
				"uid", s.object.GetUID(), "annotation", c.Key)
		}
	}
	return won, replaced, overruled
}

// owns reports whether an object has the record of this operation. Its text may differ, because
// the answer to a write may have been lost.
func (s *storedRecord) owns(o client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := creation.RecordOf(o)

	// The same tracker may repeat an attempt that was abandoned. Records count whole
	// seconds.
	return err == nil && r != nil && r.Holder == s.record.Holder && r.Token == s.record.Token &&
		seam.Stamp(r.HolderStarted()) == seam.Stamp(s.record.HolderStarted())
}

// wasTried reports whether the operation itself may have stored v under key.
func (s *storedRecord) wasTried(key, v string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.tried[key], v)
}

// inCache reports whether the cache has the last write.
func (s *storedRecord) inCache(ctx context.Context) bool {
	o, err := s.read(context.WithoutCancel(ctx), s.writer.Client)
	if err != nil {
		return kerrors.IsNotFound(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.GetUID() != s.object.GetUID() || !seam.OlderThan(o.GetResourceVersion(), s.version)
}

// moved reports whether the object has left the cache and, on the API server, no longer has the record of this
// operation. While the cache has the object, that costs no request.
func (s *storedRecord) moved(ctx context.Context) bool {
	if _, err := s.read(ctx, s.writer.Client); !kerrors.IsNotFound(err) {
		return false
	}
	o, err := s.read(ctx, s.writer.Live)
	return err == nil && o.GetUID() == s.object.GetUID() && !s.owns(o)
}

// isOwned reports whether the object on the API server has the record of this operation.
func (s *storedRecord) isOwned(ctx context.Context) (bool, error) {
	o, err := s.read(ctx, s.writer.Live)
	return err == nil && o.GetUID() == s.object.GetUID() && s.owns(o), client.IgnoreNotFound(err)
}

// read the object again.
func (s *storedRecord) read(ctx context.Context, from client.Reader) (client.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	o := seam.Empty(s.object)
	return o, from.Get(ctx, client.ObjectKeyFromObject(s.object), o)
}
