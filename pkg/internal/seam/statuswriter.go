package seam

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// statusWriter is the part of the client seam that writes status.
type statusWriter struct {
	client.SubResourceWriter
}

// statusClient is statusWriter for callers of SubResource("status").
type statusClient struct {
	client.SubResourceReader
	statusWriter
}

// Update writes the status of an object, unless that would change nothing.
func (w *statusWriter) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	s := From(ctx)
	if !s.named(o) {
		return w.SubResourceWriter.Update(ctx, o, opts...)
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release(ctx)

	if !s.Tracks(o) || redirected(opts) {
		return s.passThrough(o, func() error { return w.SubResourceWriter.Update(ctx, o, opts...) })
	}

	written, exact := false, o.GetResourceVersion() == s.base.GetResourceVersion()
	err := s.writeStatus(ctx, o, func() error {
		if written = len(opts) > 0 || !s.statusUnchanged(o); !written {
			return nil
		}
		return w.SubResourceWriter.Update(ctx, o, opts...)
	})
	if err != nil || !written {
		return err
	}
	if !exact {
		s.NoteDirectWrite(o)
		return nil
	}

	// Only status was written. Other changes of o are in memory only.
	server, partial := clone(s.base), s.partial
	server.SetResourceVersion(o.GetResourceVersion())
	s.kind.moveStatus(server, clone(o))
	s.noteWrite(server, true)
	s.partial = partial
	return nil
}

// redirected reports whether an update with these options does not store the object itself.
func redirected(opts []client.SubResourceUpdateOption) bool {
	if len(opts) == 0 {
		return false
	}
	o := client.SubResourceUpdateOptions{}
	o.ApplyOptions(opts)
	return o.SubResourceBody != nil || len(o.DryRun) > 0
}

// writeStatus makes a status write of the inner reconciler with the conditions that the
// patches add to o. If the API server refuses it, write is called again: first with the
// stored conditions of the patches, then without them. A report must not keep the inner
// reconciler from writing its status.
func (s *Session) writeStatus(ctx context.Context, o client.Object, write func() error) error {
	// A copy is needed only if the inner reconciler has changed the status.
	var inner reflect.Value
	if !s.statusUnchanged(o) {
		inner = s.kind.conditionsOf(o)
	}
	s.statusWritten, s.statusRefused = true, false
	acquired := s.acquired(ctx)
	for _, p := range s.patches {
		if p.Status != nil {
			p.Status(acquired, s, o)
		}
	}

	refused := write()
	err := refused
	if mayRefuse(err) && !inner.IsValid() {
		inner = s.kind.conditionsOf(s.base)
	}
	for _, server := range []client.Object{s.base, nil} {
		if mayRefuse(err) && s.kind.setConditions(o, s.withoutPatches(inner, server)) {
			s.noteUncertainStatus(s.base, err)
			err = write()
		}
	}

	switch {
	case err != nil:
		s.noteFailedStatus(err)
	case refused != nil:
		s.refused(ctx, o, refused)
	}
	return err
}

// refused tells the patches that a status write was made without their conditions.
func (s *Session) refused(ctx context.Context, o client.Object, err error) {
	log.FromContext(ctx).Info(
		"The API server refuses conditions that Graft adds: the status was written without them", "error", err,
	)
	s.refusedConditions()
	for _, p := range s.patches {
		if p.Refused != nil {
			p.Refused(s, o, err)
		}
	}
}

// noteFailedStatus notes a failed status write of the inner reconciler. After a conflict the object
// is reconciled again soon, because the conflicting write may cause no event.
func (s *Session) noteFailedStatus(err error) {
	if kerrors.IsConflict(err) {
		s.Requeue(WithBackoff())
	}
	s.statusRefused = IsRefused(err)
	s.noteUncertainStatus(s.base, err)
}

// Patch patches the status of an object. A patch that is computed from conditions in memory
// includes the conditions of the session's patches, as an update does. Otherwise the two
// would replace each other's conditions in each reconcile.
func (w *statusWriter) Patch(
	ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	s := From(ctx)
	if !s.named(o) {
		return w.SubResourceWriter.Patch(ctx, o, p, opts...)
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release(ctx)

	if !s.Tracks(o) {
		return s.passThrough(o, func() error { return w.SubResourceWriter.Patch(ctx, o, p, opts...) })
	}

	so := client.SubResourcePatchOptions{}
	so.ApplyOptions(opts)
	write := func() error { return w.SubResourceWriter.Patch(ctx, o, p, opts...) }

	if so.SubResourceBody == nil && len(so.DryRun) == 0 && patchesConditions(o, p) {
		if err := s.writeStatus(ctx, o, write); err != nil {
			return err
		}
	} else if err := write(); err != nil {
		s.noteFailedStatus(err)
		return err
	}

	s.NoteDirectWrite(o)
	return nil
}

// Apply applies a configuration of status.
func (w *statusWriter) Apply(
	ctx context.Context, ac runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
) error {
	s := From(ctx)
	if !s.applies(ac) {
		return w.SubResourceWriter.Apply(ctx, ac, opts...)
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release(ctx)

	err := w.SubResourceWriter.Apply(ctx, ac, opts...)
	if refused := err; mayRefuse(err) && s.withdraw(ctx) {
		if err = w.SubResourceWriter.Apply(ctx, ac, opts...); err == nil {
			s.refused(ctx, s.base, refused)
		}
	}

	if err == nil {
		s.applied(ac)
	}
	return err
}

// withdraw removes the conditions of the patches from the API server, and reports whether it
// did. An apply keeps the fields of other writers, so the API server may refuse it because
// of these conditions.
func (s *Session) withdraw(ctx context.Context) bool {
	if s.base == nil {
		return false
	}
	want := clone(s.base)
	s.kind.setConditions(want, s.withoutPatches(s.kind.conditionsOf(want), nil))
	server, err := s.patchStatus(ctx, want)
	if err != nil || server == nil {
		return false
	}
	s.noteWrite(server, true)
	return true
}

// patchesConditions reports whether p sets conditions from memory. A patch that does not must
// not include the conditions of the patches: it would replace other writers' conditions.
func patchesConditions(o client.Object, p client.Patch) bool {
	if p.Type() != types.MergePatchType {
		return false
	}
	data, err := p.Data(o)
	if err != nil {
		return false
	}
	body := map[string]any{}
	if err := json.Unmarshal(data, &body); err != nil {
		return false
	}
	if _, found, err := unstructured.NestedFieldNoCopy(body, "status", "conditions"); err != nil || !found {
		return false
	}

	// A patch that is not computed from o is the same for any object.
	other, err := p.Data(Empty(o))
	return err != nil || !bytes.Equal(data, other)
}

// statusUnchanged reports whether a write of o's status would change nothing. To equal the
// status that was read is not enough: a stale read may be older than the last write of this
// process. The API server would then refuse the write, which causes a retry.
func (s *Session) statusUnchanged(o client.Object) bool {
	return !s.options.WriteUnchangedStatus &&
		s.exact && o.GetResourceVersion() == s.base.GetResourceVersion() &&
		s.kind.statusEqual(o, s.base)
}
