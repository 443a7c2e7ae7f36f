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

	// record on the API server, and its text.
	record *creation.Record
	text   string

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
		writer: c.writer, events: c.events, shutdown: s, object: o, record: r, text: r.Text(),
		storing: make(chan struct{}, 1), annotations: map[string]string{}, tried: map[string][]string{},
	}
}

// snapshot returns the record on the API server. It must not be changed.
func (s *storedRecord) snapshot() *creation.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

// setName sets the external name to be stored.
func (s *storedRecord) setName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.annotations[meta.AnnotationKeyExternalName] = name
}

// setHandle sets the handle to be stored.
func (s *storedRecord) setHandle(handle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handle = handle
}

// dropHandle drops a handle that the API server refuses, unless another one was set.
func (s *storedRecord) dropHandle(handle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handle == handle {
		s.handle = ""
	}
}

// current returns a copy of the record with the handle that is set. The caller holds mu.
func (s *storedRecord) current() creation.Record {
	r := *s.record
	r.Handle = cmp.Or(s.handle, r.Handle)
	return r
}

// addAnnotations adds annotations that a client has set in its managed resource.
func (s *storedRecord) addAnnotations(set map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, v := range set {
		// SetExternalName comes first.
		if _, ok := s.annotations[k]; !ok {
			s.annotations[k] = v
		}
	}
}

// name returns the external name, and whether the operation has set it.
func (s *storedRecord) name() (name string, named bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := s.annotations[meta.AnnotationKeyExternalName]; name != "" {
		return name, true
	}
	return meta.GetExternalName(s.object), s.record.Named
}

// withEnding returns the record of the operation with its end.
func (s *storedRecord) withEnding(end ending) *creation.Record {
	_, named := s.name()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.current()
	return failedRecord(&r, end.err, named, end.at)
}

// lock waits until no other write is in progress.
func (s *storedRecord) lock(ctx context.Context) error {
	select {
	case s.storing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *storedRecord) unlock() { <-s.storing }

// withStoreTimeout returns a context for one attempt to store something. It is not cancelled with
// the operation, whose external name must not be lost.
func (s *storedRecord) withStoreTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := storeTimeout
	if s.shutdown.stopping.Err() != nil {
		timeout = stoppingStoreTimeout
	}
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}

// update the record of a running operation, together with the annotations that are set. over
// reports whether the operation has ended. Whose value wins: of another writer's record, name and annotation, theirs do
// while an update or delete runs; the name of a create's result replaces theirs, and an event has both.
func (s *storedRecord) update(ctx context.Context, over func() bool, fn func(r *creation.Record)) error {
	ctx, cancel := s.withStoreTimeout(ctx)
	defer cancel()
	if err := s.lock(ctx); err != nil {
		return errors.Wrap(err, "cannot store the record of the operation")
	}
	defer s.unlock()
	if over() {
		return ErrEnded
	}

	s.mu.Lock()
	was, r := s.text, s.current()
	rule := ruleOf(s.record)
	fn(&r)
	text, set := r.Text(), s.changes()
	s.mu.Unlock()
	server, err := s.store(ctx, append(seam.Changes{{
		Key:     AnnotationKeyOperation,
		Value:   text,
		Was:     was,
		Existed: true,
	}}, set...), rule)

	switch {
	case server != nil && seam.IsRefused(err): // The record and the name are stored.
	case seam.Permanent(err):
		// Its result must still be stored.
		s.dropHandle(r.Handle)
		return errors.Wrap(err, "cannot store the record of the operation")
	case err != nil:
		return errors.Wrap(err, "cannot store the record of the operation; it is stored with its result")
	case server == nil:
		return errors.Wrap(errGone, "cannot store the record of the operation")
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.record, s.text, s.version = &r, text, server.GetResourceVersion()
	return nil
}

// changes returns the annotations to be stored beside the record. The caller holds mu.
func (s *storedRecord) changes() seam.Changes {
	var cs seam.Changes

	for _, k := range slices.Sorted(maps.Keys(s.annotations)) {
		c := seam.SetAnnotation(s.object, k, s.annotations[k])
		if !c.Existed || c.Was != c.Value || len(s.tried[k]) > 0 {
			cs = append(cs, c)
		}
	}

	for _, c := range cs {
		if !slices.Contains(s.tried[c.Key], c.Value) {
			s.tried[c.Key] = append(s.tried[c.Key], c.Value)
		}
	}
	return cs
}

// result returns the changes that store the result of the operation.
func (s *storedRecord) result(end ending) (seam.Changes, seam.Rule) {
	name, _ := s.name()
	ended := s.withEnding(end)
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.changes()

	// The record comes first: if it is another writer's, nothing else is compared.
	cs := creation.On(s.object)

	switch {
	case end.err != nil && ended.Type == creation.Create && ended.Phase == creation.RecordFailed:
		cs = cs.FailedWith(ended, end.err, end.at)
	case end.err != nil:
		cs = cs.WithRecord(ended)
	case ended.Type != creation.Create:
		cs = cs.WithoutRecord()
	default:
		cs = cs.CreateSucceeded(ended, end.at)

		// Another writer may have changed the name of the external resource.
		if name != "" && len(set.Only(meta.AnnotationKeyExternalName)) == 0 {
			cs = cs.Named(name)
		}
	}
	if s.record.Abandoned {
		return append(cs.Changes, set...), seam.Observed
	}
	return append(cs.Changes, set...), ruleOf(s.record)
}

// storeResult stores the result of the operation. It reports whether the object no longer exists.
func (s *storedRecord) storeResult(ctx context.Context, end ending) (gone bool, err error) {
	ctx, cancel := s.withStoreTimeout(ctx)
	defer cancel()
	if err := s.lock(ctx); err != nil {
		return false, errors.Wrap(err, "cannot store the result of the operation")
	}
	defer s.unlock()
	cs, rule := s.result(end)
	server, err := s.store(ctx, cs, rule)
	if seam.IsOverruled(err) {
		server, err = s.yield(ctx, cs)
	}

	if server != nil && seam.IsRefused(err) {
		s.events.warn(s.object, reasonCannotStoreResult, err)
		err = nil
	}
	if err != nil {
		return false, errors.Wrap(err, "cannot store the result of the operation")
	}
	if server == nil {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = server.GetResourceVersion()
	return false, nil
}

// yield to another writer of the record: a person who settled the create, or another process
// that treated the operation as interrupted. Their values stay. The external name is stored if
// the object has none.
func (s *storedRecord) yield(ctx context.Context, cs seam.Changes) (client.Object, error) {
	// The conflict may be about another annotation than the record, or about the name.
	server, err := s.store(ctx, cs.Only(AnnotationKeyOperation, meta.AnnotationKeyExternalName), seam.Observed)
	if seam.IsOverruled(err) {
		server, err = s.store(ctx, cs.Only(AnnotationKeyOperation), seam.Observed)
	}

	if err == nil {
		s.events.log.Info(
			"Another writer set an annotation that the operation sets, too; it is kept", "uid", s.object.GetUID(),
		)
		return server, nil
	}
	if !seam.IsOverruled(err) {
		return nil, err
	}
	s.events.warn(s.object, reasonOverruled, errors.Errorf(
		"another writer changed the record of an operation (annotation %s) while it ran", AnnotationKeyOperation,
	))
	server, err = s.store(ctx, cs.Only(meta.AnnotationKeyExternalName), seam.Observed)
	if seam.IsOverruled(err) {
		// Only a person can tell which external resource is the right one.
		name, _ := s.name()
		s.events.warn(s.object, reasonOverruled, errors.Errorf(
			"an operation that was treated as interrupted created %q, which is not the external name of this managed resource: delete it if it is not needed",
			name,
		))
		return s.object, nil
	}
	return server, err
}

// store changes. They are compared with the live object, because only the writer of a record
// may replace it. It returns the object as the API server then has it, or nil if it no longer
// exists.
func (s *storedRecord) store(ctx context.Context, cs seam.Changes, rule seam.Rule) (client.Object, error) {
	live := seam.Empty(s.object)
	err := s.writer.Live.Get(ctx, client.ObjectKeyFromObject(s.object), live)

	switch {
	case seam.IsGone(err), err == nil && live.GetUID() != s.object.GetUID():
		return nil, nil //nolint:nilnil // Absence is an answer.
	case err != nil:
		return nil, errors.Wrap(err, "cannot read the object")
	}

	ours := s.owns(live)
	for i, c := range cs {
		if v, exists := live.GetAnnotations()[c.Key]; exists && (c.Key == AnnotationKeyOperation && ours ||
			s.wasTried(c.Key, v)) {
			cs[i].Was, cs[i].Existed = v, true
		}
	}

	overwrote := s.events.overwrote(s.object)
	left, err := cs.Left(live, rule, overwrote)
	if err != nil || len(left) == 0 {
		return live, err
	}
	server, _, err := s.writer.Store(ctx, live, left, rule, overwrote)
	if seam.IsRefused(err) && len(left.Needed()) == 0 {
		// The record and the name were stored before.
		return live, err
	}
	return server, err
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
	return o.GetUID() != s.object.GetUID() || !s.newerThan(o)
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

// newerThan reports whether o is known to lack the last write.
func (s *storedRecord) newerThan(o client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seam.OlderThan(o.GetResourceVersion(), s.version)
}
