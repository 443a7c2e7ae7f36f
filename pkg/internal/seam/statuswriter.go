package seam

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
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
	kind := updateStatus
	if len(opts) > 0 {
		so := client.SubResourceUpdateOptions{}
		so.ApplyOptions(opts)
		if kind = updateStatusAlways; so.SubResourceBody != nil || len(so.DryRun) > 0 {
			kind = writeOther
		}
	}
	return From(ctx).write(ctx, o, kind, func() error { return w.SubResourceWriter.Update(ctx, o, opts...) })
}

// updateStatus writes the status of the object of this session.
func (s *Session) updateStatus(ctx context.Context, o client.Object, always bool, request func() error) error {
	current := o.GetResourceVersion() == s.base.GetResourceVersion()
	if sent, err := s.writeStatus(ctx, o, always, request); err != nil || !sent {
		return err
	}
	if !current {
		s.NoteDirectWrite(o)
		return nil
	}

	// Only status was written. Other changes of o are in memory only.
	server := clone(s.base)
	server.SetResourceVersion(o.GetResourceVersion())
	s.kind.moveStatus(server, clone(o))
	s.noteWrite(server, s.known)
	return nil
}

// writeStatus makes a status write of the inner reconciler with the conditions that the
// patches add to o. If the API server refuses it, the request is made again: first with the status
// of the inner reconciler, then also without stored conditions of the patches. A report must not keep the inner
// reconciler from writing its status. Unless always is set, no request is sent that would change nothing.
func (s *Session) writeStatus(
	ctx context.Context, o client.Object, always bool, request func() error,
) (sent bool, err error) {
	// A copy is needed only if the inner reconciler has changed the status.
	inner := s.base
	if !s.statusUnchanged(o) {
		inner = asStored(o, nil)
	}
	s.statusWritten, s.statusRefused = true, false
	for _, p := range s.patches {
		if p.Status != nil {
			p.Status(ctx, s, o)
		}
	}

	if !always && s.statusUnchanged(o) {
		return false, nil
	}
	refused := request()
	err = refused
	if mayRefuse(err) && inner != nil {
		err = s.writePlain(o, inner, err, always, request)
	}

	switch {
	case err != nil:
		s.noteFailedStatus(err)
	case refused != nil:
		s.refused(ctx, o, refused)
	}
	return true, err
}

// writePlain repeats a request that was refused with the status of inner, and then without conditions of the patches.
func (s *Session) writePlain(o, inner client.Object, err error, always bool, request func() error) error {
	for _, keep := range []func(t xpv2.ConditionType) bool{nil, s.isForeign} {
		plain := asStored(inner, keep)
		if !mayRefuse(err) || plain == nil || s.kind.statusEqual(o, plain) {
			continue
		}
		s.kind.moveStatus(o, plain)
		s.noteFailure(err)
		if err = nil; always || !s.statusUnchanged(o) {
			err = request()
		}
	}
	return err
}

// isForeign reports whether no patch owns the conditions of a type.
func (s *Session) isForeign(t xpv2.ConditionType) bool {
	return !slices.ContainsFunc(s.patches, func(p Patch) bool { return slices.Contains(p.Conditions, t) })
}

// asStored returns a copy of o with the conditions to keep, all by default, as JSON has it: an unstructured object may
// have Go values that can't be copied. It returns nil if o can't be stored.
func asStored(o client.Object, keep func(t xpv2.ConditionType) bool) client.Object {
	data, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	v, _ := decoded(data)
	content, _ := v.(map[string]any)
	status, _ := content["status"].(map[string]any)
	if list, ok := status["conditions"].([]any); ok && keep != nil {
		status["conditions"] = slices.DeleteFunc(list, func(v any) bool {
			c, _ := v.(map[string]any)
			t, _ := c["type"].(string)
			return !keep(xpv2.ConditionType(t))
		})
	}
	c := Empty(o)
	if u, ok := c.(runtime.Unstructured); ok {
		u.SetUnstructuredContent(content)
		return c
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, c); err != nil {
		return nil
	}
	return c
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
	s.noteFailure(err)
}

// Patch patches the status of an object. A patch that is computed from conditions in memory
// includes the conditions of the session's patches, as an update does. Otherwise the two
// would replace each other's conditions in each reconcile.
func (w *statusWriter) Patch(
	ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	so := client.SubResourcePatchOptions{}
	so.ApplyOptions(opts)
	kind := patchStatus
	switch s := From(ctx); {
	case so.SubResourceBody != nil || len(so.DryRun) > 0:
		kind = writeOther
	case s.named(o) && patchesConditions(o, p):
		kind = patchConditions
	}
	return From(ctx).write(ctx, o, kind, func() error { return w.SubResourceWriter.Patch(ctx, o, p, opts...) })
}

// patchStatus patches the status of the object of this session.
func (s *Session) patchStatus(ctx context.Context, o client.Object, conditions bool, request func() error) error {
	if conditions {
		if _, err := s.writeStatus(ctx, o, true, request); err != nil {
			return err
		}
	} else if err := request(); err != nil {
		s.noteFailedStatus(err)
		return err
	}
	s.NoteDirectWrite(o)
	return nil
}

// Apply applies a configuration of status, of this object perhaps.
func (w *statusWriter) Apply(
	ctx context.Context, ac runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
) error {
	return From(ctx).apply(ctx, func() error { return w.SubResourceWriter.Apply(ctx, ac, opts...) })
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
	return !s.options.WriteUnchangedStatus && s.Knows(o) && s.kind.statusEqual(o, s.base)
}
