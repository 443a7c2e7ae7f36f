package managed

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// external is the external seam: what happens around each call of an external
// client, whatever type of managed resource it is for.
type external struct {
	config *config

	// deletion is nil if deletions are not reported.
	deletion *deletion
}

// A connector is the external seam over an external connector.
type connector[managed resource.Managed] struct {
	inner    TypedExternalConnectDisconnector[managed]
	external *external
}

// Connect to the provider.
func (c *connector[managed]) Connect(ctx context.Context, mg managed) (TypedExternalClient[managed], error) {
	s := seam.From(ctx)
	s.Connecting(mg)

	if err := c.external.config.async.connecting(s, mg); err != nil {
		reached(s, seam.PhaseConnectFailed, err)
		return nil, err
	}

	ec, err := c.inner.Connect(ctx, mg)
	if err == nil && ec == nil {
		err = errors.New("the external connector returned neither a client nor an error")
	}

	if err != nil {
		reached(s, seam.PhaseConnectFailed, err)
		explainTerminating(s, err)

		return nil, err
	}

	c.external.config.protection.connected(ctx, mg)

	return &externalClient[managed]{inner: ec, external: c.external}, nil
}

// Disconnect from the provider.
func (c *connector[managed]) Disconnect(ctx context.Context) error {
	return c.inner.Disconnect(ctx)
}

// An externalClient is the external seam over an external client.
type externalClient[managed resource.Managed] struct {
	inner    TypedExternalClient[managed]
	external *external
}

// Observe the external resource.
func (c *externalClient[managed]) Observe(ctx context.Context, mg managed) (ExternalObservation, error) {
	s := seam.From(ctx)

	var o ExternalObservation

	leave, err := c.external.config.reservation.observing(ctx, s, mg)
	if err != nil {
		reached(s, seam.PhaseObserveFailed, err)
		return o, err
	}

	if leave {
		s.Reached(seam.PhaseObservedAbsent)
		return o, nil
	}

	err = c.external.around(ctx, mg, seam.StoreOptions{}, func() (err error) {
		o, err = c.inner.Observe(ctx, mg)
		return err
	})

	if err == nil {
		// Its name may be known only since.
		leave, err = c.external.config.reservation.observing(ctx, s, mg)
	}

	if leave {
		o = ExternalObservation{}
	} else if err == nil {
		leave, err = c.external.config.preCreate.observed(mg, &o)
	}

	if err != nil {
		c.external.config.confirmation.present(mg, false)
		reached(s, seam.PhaseObserveFailed, err)

		return o, err
	}

	s.Reached(seam.PhaseObservedAbsent)

	if o.ResourceExists {
		c.external.config.confirmation.present(mg, true)
		s.Reached(seam.PhaseObservedPresent)
	} else if !leave {
		if err := c.external.config.confirmation.absent(s, mg); err != nil {
			return o, err
		}
	}

	// Annotations are stored by now. If they were all there was to say, then
	// writing the whole object for them would only cost a write and, for want
	// of a policy that allows it, might not happen at all.
	if o.ResourceLateInitialized && !c.external.config.withoutExternalNamePersistence && s.OnlyAnnotationsDiffer(mg) {
		o.ResourceLateInitialized = false
	}

	return o, nil
}

// Create the external resource.
func (c *externalClient[managed]) Create(ctx context.Context, mg managed) (ExternalCreation, error) {
	var o ExternalCreation

	s := seam.From(ctx)

	if err := c.external.config.reservation.acting(ctx, s, mg); err != nil {
		return o, err
	}

	// The name that a create returns is known only once.
	so := seam.StoreOptions{Insist: true, Patient: true}

	err := c.external.around(ctx, mg, so, func() error {
		there, err := observePreCreate(ctx, c.external.config.preCreate, c.inner, mg)
		if err != nil || there {
			return err
		}

		o, err = c.inner.Create(ctx, mg)

		return err
	})
	if err == nil {
		c.external.config.reservation.created(ctx, s, mg)
	}

	if err != nil && s != nil && c.external.config.mayHaveCreated(err) {
		s.Continues = true
	}

	return o, err
}

// Update the external resource.
func (c *externalClient[managed]) Update(ctx context.Context, mg managed) (ExternalUpdate, error) {
	var o ExternalUpdate

	if err := c.external.config.reservation.acting(ctx, seam.From(ctx), mg); err != nil {
		return o, err
	}

	err := c.external.around(ctx, mg, seam.StoreOptions{}, func() (err error) {
		o, err = c.inner.Update(ctx, mg)
		return err
	})

	return o, err
}

// Delete the external resource.
func (c *externalClient[managed]) Delete(ctx context.Context, mg managed) (ExternalDelete, error) {
	s := seam.From(ctx)

	var o ExternalDelete

	if err := c.external.config.reservation.acting(ctx, s, mg); err != nil {
		s.Reached(seam.PhaseDeleteFailed)
		return o, err
	}

	c.external.deletion.announce(ctx, s, mg)

	if s.Gone() {
		// Who let it go keeps the external resource, or gave it to another.
		s.Reached(seam.PhaseDeleteFailed)
		return o, errors.New("the managed resource was gone before its external resource was deleted, which is left alone")
	}

	err := c.external.around(ctx, mg, seam.StoreOptions{}, func() (err error) {
		o, err = c.inner.Delete(ctx, mg)
		return err
	})
	if err != nil {
		s.Reached(seam.PhaseDeleteFailed)
		return o, err
	}

	s.Reached(seam.PhaseDeleteRequested)

	if s == nil || !s.Continues {
		c.external.config.confirmation.deleted(mg)
	}

	return o, nil
}

// Disconnect from the provider.
func (c *externalClient[managed]) Disconnect(ctx context.Context) error {
	return c.inner.Disconnect(ctx)
}

// around calls an external client and then stores the annotations that it set,
// also if it failed, and even if it panicked.
//
// The call's own error comes first. That storing failed is returned only if the
// call succeeded and would be repeated: upstream takes an error from Create to
// mean that nothing was created, so a create that succeeded must not return one.
func (e *external) around(ctx context.Context, mg resource.Managed, so seam.StoreOptions, call func() error) error {
	if e.config.withoutExternalNamePersistence {
		return call()
	}

	returned := false

	defer func() {
		if !returned {
			_ = e.store(ctx, mg, so)
		}
	}()

	err := call()
	returned = true

	serr := e.store(ctx, mg, so)
	if err != nil || so.Insist {
		return err
	}

	return serr
}

// store the annotations that the external client set.
func (e *external) store(ctx context.Context, mg resource.Managed, so seam.StoreOptions) error {
	s := seam.From(ctx)

	changes := s.ChangedAnnotations(mg)
	if len(changes) == 0 {
		return nil
	}

	so.Overwrote = func(key, theirs, ours string) { e.config.recordOverwritten(mg, key, theirs, ours) }

	err := s.StoreAnnotations(ctx, mg, changes, so)
	if err != nil && !kerrors.IsConflict(err) {
		e.config.log.Info("Cannot store annotations that the external client set", "uid", mg.GetUID(), "error", err)
		e.config.record.Event(mg, event.Warning(reasonCannotStoreAnnotations, err))
	}

	return err
}

// reached notes where a reconcile ended, unless upstream will quietly run it
// again.
func reached(s *seam.Session, p seam.Phase, err error) {
	if !kerrors.IsConflict(err) {
		s.Reached(p)
	}
}
