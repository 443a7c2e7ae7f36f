package seam

import (
	"context"
	"encoding/json"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composed"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxAnnounceFailures is how many reconciles in a row may fail because
	// conditions can't be announced. After that they go on without: a deletion
	// must not depend on whether anybody can watch it.
	maxAnnounceFailures = 5

	conditionAttempts   = 5
	firstConditionDelay = 10 * time.Millisecond
)

// ErrNoStatus means that the API server has the object but no status for it:
// its CRD lacks the status subresource.
var ErrNoStatus = errors.New("the kind has no status subresource: its CRD must declare one")

// Conditioned returns o's conditions, at the place where Crossplane puts them.
// It is false for an object that has none, and for one that has something else
// there, which setting a condition would destroy.
func Conditioned(o client.Object) (resource.Conditioned, bool) {
	found := false

	if u, ok := o.(runtime.Unstructured); ok {
		if found, ok = hasConditions(u.UnstructuredContent()); !ok {
			return nil, false
		}
	}

	if c, ok := o.(resource.Conditioned); ok {
		return c, true
	}

	u, ok := o.(*unstructured.Unstructured)
	if !ok || !found {
		return nil, false
	}

	// It shares u's content.
	return &composed.Unstructured{Unstructured: *u}, true
}

// hasConditions reports whether there are conditions, and whether what there is
// has their shape.
func hasConditions(content map[string]any) (found, ok bool) {
	v, found, err := unstructured.NestedFieldNoCopy(content, "status", "conditions")

	switch {
	case err != nil:
		return false, false
	case !found || v == nil:
		return false, true
	}

	list, ok := v.([]any)
	if !ok {
		return false, false
	}

	for _, c := range list {
		if !isCondition(c) {
			return false, false
		}
	}

	return true, true
}

// isCondition reports whether v can be decoded as a condition.
func isCondition(v any) bool {
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}

	for _, k := range []string{"type", "status", "reason", "message", "lastTransitionTime"} {
		switch m[k].(type) {
		case nil, string:
		default:
			return false
		}
	}

	switch m["observedGeneration"].(type) {
	case nil, int64, float64:
		return true
	default:
		return false
	}
}

// ConditionOf returns o's condition of that type, or the zero condition if o has no
// conditions.
func ConditionOf(o client.Object, t xpv2.ConditionType) xpv2.Condition {
	if c, ok := Conditioned(o); ok {
		return c.GetCondition(t)
	}

	return xpv2.Condition{}
}

// SetConditions sets conditions on o as upstream does, with the generation they
// were observed at. A condition that the API server has already keeps the time
// of its last transition, whatever happened to it in memory meanwhile.
func (s *Session) SetConditions(o client.Object, cs ...xpv2.Condition) {
	to, ok := Conditioned(o)
	if !ok {
		return
	}

	from, _ := Conditioned(s.base)

	for _, c := range cs {
		c.ObservedGeneration = o.GetGeneration()

		if from != nil {
			if had := from.GetCondition(c.Type); had.Equal(c) && !had.LastTransitionTime.IsZero() {
				c.LastTransitionTime = had.LastTransitionTime
			}
		}

		to.SetConditions(c)
	}
}

// Say returns the conditions that an object is to have, given what the API
// server has, or none to leave it alone. It may be called more than once: what
// was read first may turn out to be old.
type Say func(server client.Object) []xpv2.Condition

// WriteConditions puts conditions on the API server, and nothing else. It does
// nothing if they are there. Conflicts are resolved by reading the object from
// the API server itself; an object that is gone needs no conditions, which is no
// error.
//
// If o is not nil, o's resource version follows if no other writer wrote in between.
func (s *Session) WriteConditions(ctx context.Context, o client.Object, say Say) error {
	followed := o != nil && o.GetResourceVersion() == s.base.GetResourceVersion()

	for attempt := 1; ; attempt++ {
		server, err := s.patchConditions(ctx, say(s.base))

		switch {
		case err == nil && server == nil:
			return nil
		case err == nil:
			s.wrote(server, true)

			if followed {
				o.SetResourceVersion(server.GetResourceVersion())
			}

			return nil
		case !kerrors.IsConflict(err) && !kerrors.IsNotFound(err) && !kerrors.IsInvalid(err):
			return errors.Wrap(err, "cannot write conditions")
		}

		live, lerr := s.live(ctx)
		if lerr != nil {
			return errors.Wrap(lerr, "cannot write conditions")
		}

		if live == nil {
			s.ended()

			return nil
		}

		if live.GetResourceVersion() == s.base.GetResourceVersion() || attempt == conditionAttempts {
			if kerrors.IsNotFound(err) {
				return ErrNoStatus
			}

			return errors.Wrap(err, "cannot write conditions")
		}

		followed = false
		s.rebase(live, s.memory.get(live).fresh(live.GetResourceVersion()))

		if werr := s.options.Wait(ctx, firstConditionDelay<<attempt); werr != nil {
			return errors.Wrap(werr, "cannot write conditions")
		}
	}
}

// Announce puts conditions on the API server before the inner reconciler sees o,
// and gives o the state that the API server then has.
//
// If that fails in a way that may pass, the error is returned, so that the
// reconcile is tried again; but not for ever. After that, or if it can't ever
// work, failed is told, and the reconcile goes on.
func (s *Session) Announce(ctx context.Context, o client.Object, failed func(o client.Object, err error), say Say) error {
	err := s.WriteConditions(ctx, nil, say)

	switch {
	case s.gone:
		return kerrors.NewNotFound(schema.GroupResource{}, o.GetName())
	case err == nil:
		s.memory.succeeded(o)

		if o.GetResourceVersion() != s.base.GetResourceVersion() {
			s.Refresh(o)
		}

		return nil
	}

	s.unannounced = true

	if !Permanent(err) && s.memory.failed(o) <= maxAnnounceFailures {
		return err
	}

	failed(o, err)

	return nil
}

// patchConditions returns the object as the API server then has it, or nil if
// there was nothing to write.
func (s *Session) patchConditions(ctx context.Context, cs []xpv2.Condition) (client.Object, error) {
	if len(cs) == 0 {
		return nil, nil //nolint:nilnil // As below.
	}

	want := clone(s.base)
	s.SetConditions(want, cs...)

	diff, err := client.MergeFrom(s.base).Data(want)
	if err != nil {
		return nil, err
	}

	body := map[string]any{}
	if err := json.Unmarshal(diff, &body); err != nil {
		return nil, err
	}

	if len(body) == 0 {
		return nil, nil //nolint:nilnil // Nothing to write is an answer.
	}

	p, err := guarded(s.base, body)
	if err != nil {
		return nil, err
	}

	o := Empty(s.base)

	err = s.client.Status().Patch(ctx, o, p)
	s.doubt(s.base, err)

	return o, err
}
