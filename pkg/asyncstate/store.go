package asyncstate

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

const (
	// storeTimeout bounds one try to store something.
	storeTimeout = 30 * time.Second

	// lastStoreTimeout bounds it while the process stops.
	lastStoreTimeout = 5 * time.Second

	// A result that can't be stored is tried again after these.
	firstStoreDelay = time.Second
	lastStoreDelay  = 30 * time.Second

	// The cache is looked at so often until it has what was stored.
	firstCacheDelay = 10 * time.Millisecond
	lastCacheDelay  = time.Second
)

// storeTimeout is how long one try to store something may take.
func (t *Tracker) storeTimeout() time.Duration {
	if t.stopping.Err() != nil {
		return lastStoreTimeout
	}
	return storeTimeout
}

// store puts changes on the API server. They are compared with what that has now,
// not with a cache: a record is only replaced by who wrote it. It returns the
// object as the API server then has it, or nil if it is gone.
func (op *Operation) store(ctx context.Context, cs seam.Changes, rule seam.Rule) (client.Object, error) {
	live := seam.Empty(op.object)
	err := op.tracker.writer.Live.Get(ctx, client.ObjectKeyFromObject(op.object), live)

	switch {
	case seam.IsGone(err), err == nil && live.GetUID() != op.object.GetUID():
		return nil, nil //nolint:nilnil // To be gone is an answer.
	case err != nil:
		return nil, errors.Wrap(err, "cannot read the object")
	}

	text, ours := op.owns(live)

	for i := range cs {
		v, exists := live.GetAnnotations()[cs[i].Key]

		switch {
		case cs[i].Key == AnnotationKeyOperation && ours:
			cs[i].Was, cs[i].Existed = text, true
		case exists && op.wasTried(cs[i].Key, v):
			// It is ours to replace.
			cs[i].Was, cs[i].Existed = v, true
		}
	}

	left, err := cs.Left(live, rule, op.overwrote)
	if err != nil || len(left) == 0 {
		return live, err
	}
	server, _, err := op.tracker.writer.Store(ctx, live, left, rule, op.overwrote)
	if seam.IsRefused(err) && len(left.Needed()) == 0 {
		// What is needed was stored before.
		return live, err
	}
	return server, err
}

// owns reports whether the record of an object is this operation's, and returns its
// text: not always the one in memory, since the answer to a write may have been lost.
func (op *Operation) owns(o client.Object) (string, bool) {
	op.mu.Lock()
	defer op.mu.Unlock()
	r, err := creation.RecordOf(o)

	// An attempt that was abandoned may be made again by the same tracker. Records count
	// whole seconds.
	ours := err == nil && r != nil && r.Holder == op.record.Holder && r.Token == op.record.Token && seam.Stamp(r.HolderBegan()) == seam.Stamp(op.record.HolderBegan())
	return o.GetAnnotations()[AnnotationKeyOperation], ours
}

// wasTried reports whether the operation itself may have stored v under key.
func (op *Operation) wasTried(key, v string) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return slices.Contains(op.tried[key], v)
}

// lock the right to store something of an operation.
func (op *Operation) lock(ctx context.Context) error {
	select {
	case op.storing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (op *Operation) unlock() { <-op.storing }

// update what is stored of a running operation. Its errors leave the outcome unknown.
func (op *Operation) update(ctx context.Context, fn func(r *creation.Record)) error {
	if err := op.tryUpdate(ctx, fn); err != nil {
		return unknown{err}
	}
	return nil
}

func (op *Operation) tryUpdate(ctx context.Context, fn func(r *creation.Record)) error {
	// An operation that was cancelled may have learned what must not be lost.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), op.tracker.storeTimeout())
	defer cancel()
	if err := op.lock(ctx); err != nil {
		return errors.Wrap(err, "cannot store what is known of the operation")
	}
	defer op.unlock()
	op.mu.Lock()
	if op.over {
		op.mu.Unlock()
		return ErrEnded
	}
	had, was := *op.record, op.text
	r := had
	fn(&r)
	text, cs := r.Text(), op.changes()
	op.mu.Unlock()
	rec := seam.Change{Key: AnnotationKeyOperation, Value: text, Was: was, Existed: true}
	server, err := op.store(ctx, append(seam.Changes{rec}, cs...), ruleOf(&had))

	switch {
	case server != nil && seam.IsRefused(err): // What is refused is none of what is needed: see attempt.
	case err != nil:
		return errors.Wrap(err, "cannot store what is known of the operation; it is stored with its result")
	case server == nil:
		return errors.Wrap(errGone, "cannot store what is known of the operation")
	}

	op.mu.Lock()
	defer op.mu.Unlock()
	op.record, op.text, op.version = &r, text, server.GetResourceVersion()
	return nil
}

// changes returns the annotations that are to be stored beside the record. It needs
// the lock.
func (op *Operation) changes() seam.Changes {
	var cs seam.Changes

	for _, k := range slices.Sorted(maps.Keys(op.set)) {
		if c := seam.SetAnnotation(op.object, k, op.set[k]); !c.Existed || c.Was != c.Value || len(op.tried[k]) > 0 {
			cs = append(cs, c)
		}
	}

	for _, c := range cs {
		if !slices.Contains(op.tried[c.Key], c.Value) {
			op.tried[c.Key] = append(op.tried[c.Key], c.Value)
		}
	}
	return cs
}

// name of the external resource, as far as the operation knows. While it may set one, it
// needs the lock.
func (op *Operation) name() string {
	if name := op.set[meta.AnnotationKeyExternalName]; name != "" {
		return name
	}
	return meta.GetExternalName(op.object)
}

func (op *Operation) overwrote(key, theirs, ours string) {
	op.tracker.overwrote(op.object, key, theirs, ours)
}

// result returns the changes that store the result of an operation that is over.
func (op *Operation) result() (seam.Changes, seam.Rule) {
	op.mu.Lock()
	defer op.mu.Unlock()
	rule, set := ruleOf(op.record), op.changes()

	// The record comes first: if it is another writer's, nothing else is compared.
	cs := creation.On(op.object)

	switch {
	case op.err != nil:
		began := *op.record
		began.Named = op.record.Named || op.set[meta.AnnotationKeyExternalName] != ""
		ended := endedWith(&began, op.err, op.endedAt)
		if ended.Type == creation.Create && ended.Phase == creation.RecordFailed {
			cs = cs.FailedWith(ended, op.endedAt)
		} else {
			cs = cs.Recorded(ended)
		}
	case op.record.Type != creation.Create:
		cs = cs.Unrecorded()
	default:
		cs = cs.Unrecorded().Succeeded(op.endedAt)

		// Another writer may have changed the name that the external resource has.
		if name := op.name(); name != "" && len(set.Only(meta.AnnotationKeyExternalName)) == 0 {
			cs = cs.Named(name)
		}
	}
	return append(cs.Changes, set...), rule
}

// attempt to store the result of an operation that is over, unless that was done.
func (op *Operation) attempt(ctx context.Context) error {
	if err := op.lock(ctx); err != nil {
		return errors.Wrap(err, "cannot store the result of the operation")
	}
	defer op.unlock()

	select {
	case <-op.settled:
		return nil
	default:
	}

	t := op.tracker
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.storeTimeout())
	defer cancel()
	cs, rule := op.result()
	server, err := op.store(ctx, cs, rule)
	if seam.IsOverruled(err) {
		server, err = op.yield(ctx, cs)
	}

	if server != nil && seam.IsRefused(err) {
		t.log.Info("The API server refuses an annotation that an operation set: it is not stored", "uid", op.object.GetUID(), "error", err)
		t.record.Event(op.object, event.Warning(reasonCannotStoreResult, err))
		err = nil
	}

	if err != nil {
		return errors.Wrap(err, "cannot store the result of the operation")
	}
	if server == nil {
		t.known.Forget(client.ObjectKeyFromObject(op.object))
		t.lost(op)
	}

	op.mu.Lock()
	if server != nil {
		op.version = server.GetResourceVersion()
	}
	op.mu.Unlock()
	close(op.settled)
	t.metrics.unstored.Dec()
	return nil
}

// yield to another writer of the record: a person who settled the matter by hand, or
// another process that took the record for a dead one's. Only what overwrites nothing of
// theirs is stored: the name, if there is none.
func (op *Operation) yield(ctx context.Context, cs seam.Changes) (client.Object, error) {
	t := op.tracker

	// It may be another annotation alone that was set meanwhile, the name at last.
	server, err := op.store(ctx, cs.Only(AnnotationKeyOperation, meta.AnnotationKeyExternalName), seam.Observed)
	if seam.IsOverruled(err) {
		server, err = op.store(ctx, cs.Only(AnnotationKeyOperation), seam.Observed)
	}

	if err == nil {
		t.log.Info("Another writer set an annotation that the operation sets, too; it is kept", "uid", op.object.GetUID())
		return server, nil
	}
	if !seam.IsOverruled(err) {
		return nil, err
	}
	t.overruled(op)
	server, err = op.store(ctx, cs.Only(meta.AnnotationKeyExternalName), seam.Observed)
	if seam.IsOverruled(err) {
		// They have another name. A person has to find out what that means.
		t.log.Info("An operation whose record was taken over ended with an external name that is not the stored one", "uid", op.object.GetUID())
		t.record.Event(op.object, event.Warning(reasonOverruled, errors.Errorf("an operation that was treated as interrupted made %q, which is not the external name of this managed resource: delete it if it is not needed", op.name())))

		// It is there.
		return op.object, nil
	}
	return server, err
}

// settle an operation that is over: store its result however long that takes, wait
// until the cache has it, and have the object reconciled.
func (op *Operation) settle() {
	t := op.tracker
	op.mu.Lock()
	abandoned := op.abandoned
	op.mu.Unlock()
	if !abandoned || t.enter() {
		defer t.leave()
	}
	key := client.ObjectKeyFromObject(op.object)
	if op.reconciled != nil {
		// Until then the name may change, and upstream may write the record as it was.
		<-op.reconciled
	}

	for delay := firstStoreDelay; ; delay = min(2*delay, lastStoreDelay) {
		err := op.attempt(context.WithoutCancel(op.ctx))
		if err == nil {
			break
		}
		t.log.Info("Cannot store the result of an operation, will retry", "uid", op.object.GetUID(), "error", err)
		t.record.Event(op.object, event.Warning(reasonCannotStoreResult, err))

		// A reconcile tries, too.
		t.enqueue(key)
		stop := t.stopping
		if stop.Err() != nil {
			// There is little time left.
			stop, delay = t.abandoning, firstStoreDelay
		}

		pause(stop, delay, op.settled)

		if t.abandoning.Err() != nil {
			// The record is stored, so the next process can continue. This one still
			// knows better than the record.
			return
		}
	}

	op.awaitCache()
	t.operations.CompareAndDelete(op.object.GetUID(), op)
	t.enqueue(key)
}

// awaitCache waits until the cache has what was stored: a reconcile that reads what is
// older would act on it.
func (op *Operation) awaitCache() {
	t := op.tracker
	for delay := firstCacheDelay; t.cancelling.Err() == nil && !op.cached(); delay = min(2*delay, lastCacheDelay) {
		pause(t.cancelling, delay, nil)
	}
}

// abandon an operation that has not ended although its time is over: its object and
// its slot are free, and Start does not wait for it. What it learns later is stored if the record is still its own.
func (op *Operation) abandon() {
	t := op.tracker

	for delay := firstStoreDelay; ; delay = min(2*delay, lastStoreDelay) {
		err := op.update(context.Background(), func(r *creation.Record) {
			*r = *endedWith(r, unknown{errNotEnded}, time.Now())
			r.Abandoned = true
		})
		if err == nil || errors.Is(err, ErrEnded) || seam.IsOverruled(err) || errors.Is(err, errGone) {
			break
		}
		t.log.Info("Cannot store that an operation did not end by its deadline, will retry", "uid", op.object.GetUID(), "error", err)
		pause(t.stopping, delay, nil)

		if t.stopping.Err() != nil {
			// The record is stored, so the next process can continue.
			return
		}
	}

	op.awaitCache()
	op.mu.Lock()
	over := op.over
	op.abandoned = !over
	op.mu.Unlock()
	if over {
		return
	}
	t.log.Info("An operation did not end by its deadline: it holds up nothing any more", "uid", op.object.GetUID())
	t.operations.CompareAndDelete(op.object.GetUID(), op)
	t.release(op.slots, op.object.GetUID())
	t.enqueue(client.ObjectKeyFromObject(op.object))
	t.leave()
}

// pause for d, or until ctx is done or the channel is closed.
func pause(ctx context.Context, d time.Duration, until <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-until:
	case <-timer.C:
	}
}

// cached reports whether the cache has what was stored.
func (op *Operation) cached() bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(op.ctx), storeTimeout)
	defer cancel()
	o := seam.Empty(op.object)
	err := op.tracker.writer.Client.Get(ctx, client.ObjectKeyFromObject(op.object), o)
	if err != nil {
		return kerrors.IsNotFound(err)
	}
	return o.GetUID() != op.object.GetUID() || !op.newerThan(o)
}

// storedIn reports whether the result of the operation is stored, and not known to be
// missing in o.
func (op *Operation) storedIn(o client.Object) bool {
	select {
	case <-op.settled:
		return !op.newerThan(o)
	default:
		return false
	}
}

// newerThan reports whether what was stored of the operation is known to be missing
// in o.
func (op *Operation) newerThan(o client.Object) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	return seam.OlderThan(o.GetResourceVersion(), op.version)
}
