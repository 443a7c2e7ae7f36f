package seam

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxAnnounceFailures is how many reconciles in a row may fail because conditions
	// cannot be announced. Later ones continue: a deletion must not depend on its report.
	maxAnnounceFailures = 5

	conditionAttempts   = 5
	firstConditionDelay = 10 * time.Millisecond
)

// SetConditions sets conditions on o as upstream does, with the observed generation unless they have one. A
// condition that equals the stored one keeps its transition time, also if it was replaced in
// memory. For a metav1.Condition an equal status is enough; Crossplane's conditions compare
// the reason and the message, too. A condition that is left to another writer is not set: see
// Patch.Restored.
func (s *Session) SetConditions(o client.Object, cs ...xpv2.Condition) {
	to, ok := s.kind.Conditioned(o)
	if !ok {
		return
	}
	from, ok := s.kind.Conditioned(s.base)
	_, crossplanes := o.(resource.Conditioned)

	for _, c := range cs {
		if ok && !s.restores(from.GetCondition(c.Type), c) {
			continue
		}
		c.ObservedGeneration = cmp.Or(c.ObservedGeneration, o.GetGeneration())

		if ok {
			had := from.GetCondition(c.Type)
			same := had.Equal(c) || !crossplanes && had.Status == c.Status
			if same && !had.LastTransitionTime.IsZero() {
				c.LastTransitionTime = had.LastTransitionTime
			}
		}

		to.SetConditions(c)
	}
}

// Say returns the conditions to set on an object, given its state on the API server, or none
// to leave the object alone. It is called again for a newer state after a conflict.
type Say func(server client.Object) []xpv2.Condition

// WriteConditions puts only these conditions on the API server, or makes no request if they
// are stored. After a conflict it reads the object from the API server itself. It returns no
// error if the object no longer exists.
//
// If o is not nil, its resource version follows the write, unless another client wrote in
// between. All attempts together take as long as a store at most: after the inner reconciler has returned, no other
// time limit ends them.
func (s *Session) WriteConditions(ctx context.Context, o client.Object, say Say) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	followed := o != nil && o.GetResourceVersion() == s.base.GetResourceVersion()

	for attempt := 1; ; attempt++ {
		server, err := s.patchConditions(ctx, say(s.base))

		switch {
		case err == nil && server == nil:
			return nil
		case err == nil:
			s.noteWrite(server, true)
			if followed {
				o.SetResourceVersion(server.GetResourceVersion())
			}
			return nil
		case !kerrors.IsConflict(err) && !kerrors.IsNotFound(err) && !kerrors.IsInvalid(err):
			return errors.Wrap(err, "cannot write conditions")
		}

		live, lerr := liveState(ctx, s.options.Live, s.base)
		if lerr != nil {
			return errors.Wrap(lerr, "cannot write conditions")
		}
		if live == nil {
			s.noteGone()
			return nil
		}

		if live.GetResourceVersion() == s.base.GetResourceVersion() || attempt == conditionAttempts {
			if kerrors.IsNotFound(err) {
				return ErrNoStatus
			}
			return errors.Wrap(err, "cannot write conditions")
		}

		followed = false
		s.setBase(live, s.histories.get(live).fresh(live.GetResourceVersion()))
		if werr := s.options.Wait(ctx, firstConditionDelay<<attempt); werr != nil {
			return errors.Wrap(werr, "cannot write conditions")
		}
	}
}

// Announce puts conditions on the API server before the inner reconciler sees o, and gives o
// the state that the API server then has.
//
// It returns a transient error, so that the reconcile is retried, a limited number of times.
// After that, and for a permanent error, it calls failed and returns nil.
func (s *Session) Announce(
	ctx context.Context, o client.Object, failed func(o client.Object, err error), say Say,
) error {
	err := s.WriteConditions(ctx, nil, say)

	switch {
	case s.gone:
		return kerrors.NewNotFound(schema.GroupResource{}, o.GetName())
	case err == nil:
		if o.GetResourceVersion() != s.base.GetResourceVersion() {
			s.Refresh(o)
		}
		return nil
	}

	s.unannounced = true
	failures := s.histories.update(o, func(v *history) { v.failures++ }).failures
	if !Permanent(err) && failures <= maxAnnounceFailures {
		return err
	}
	failed(o, err)
	return nil
}

// Withdraw announces c in place of a stored condition of its type that is True although o is
// not being deleted: another writer has restored it. A condition that o has had since the
// last write of this process is the inner reconciler's own. After a conflict o may be
// found to be deleted, and nothing is withdrawn then.
func (s *Session) Withdraw(
	ctx context.Context, o client.Object, failed func(o client.Object, err error), c xpv2.Condition,
) error {
	restored := func(o client.Object) bool {
		return !meta.WasDeleted(o) && s.kind.ConditionOf(o, c.Type).Status == corev1.ConditionTrue &&
			s.histories.get(o).version != o.GetResourceVersion()
	}
	if !restored(o) {
		return nil
	}
	return s.Announce(ctx, o, failed, func(server client.Object) []xpv2.Condition {
		if !restored(server) {
			return nil
		}
		return []xpv2.Condition{c}
	})
}

// patchConditions sets conditions on the API server. It returns the object as the API server
// then has it, or nil if there was nothing to write.
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
	o, err := writeGuarded(ctx, s.client.Status().Patch, s.client.Status().Update, s.options.Live, s.base, body,
		func(o client.Object) { s.kind.moveStatus(o, want) })
	if Permanent(err) {
		s.refusedConditions()
	}
	s.noteFailure(err)
	return o, err
}

// Stamp formats a time for a message. An elapsed time would change in each reconcile.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
