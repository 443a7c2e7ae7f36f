package contested

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/event"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// maxContestedFields is how many fields the condition names.
const maxContestedFields = 5

// With sets a field that another writer changes back each time, five times and then once a minute
// only, and says so in the ConflictingWrites condition, which names the field and the other writer. It costs the
// memory of the fields that were written last, and no request.
func With() managed.ReconcilerOption {
	return managed.With(layer.Option{
		Name:   "contested.With",
		Layers: []layer.Staged{{Stage: layer.Guard, New: newConflictingWrites}},
	})
}

// conflictingWrites reports fields that the reconciler and another writer change back and
// forth.
type conflictingWrites struct {
	contests contests
	recorder event.Recorder

	// until is how long the condition is kept without a contested field. A new process keeps
	// it as long as the earlier one would have, which knew the fields.
	store *store.Store
	until store.Key[time.Time]
}

func newConflictingWrites(p layer.Parts, _ layer.External) layer.Layer {
	w := &conflictingWrites{contests: contests{live: p.Live, store: p.Store}, recorder: p.Recorder, store: p.Store}
	return layer.Layer{Patch: seam.Patch{
		Open: w.contests.open, Bound: w.contests.bound,
		Conditions: []xpv2.ConditionType{TypeConflictingWrites}, Status: w.status,
	}}
}

func (w *conflictingWrites) status(_ context.Context, s *seam.Session, o client.Object) {
	fields := w.contests.of(s)
	if len(fields) > 0 {
		w.until.Update(w.store, o, func(t *time.Time) { *t = s.Now() })
		s.SetConditions(o, conflicting(fields, s.Now()))
		for _, f := range fields {
			if f.isNew {
				w.recorder.Event(o, event.Warning(reasonConflictingWrites, errors.New(messageOf(f))))
			}
		}
		return
	}

	if seam.ConditionOf(s.Base(), TypeConflictingWrites).Status != corev1.ConditionTrue {
		return
	}
	until := w.until.Update(w.store, o, func(t *time.Time) {
		if t.IsZero() {
			*t = s.Now().Add(contestedFor)
		}
	})
	if s.Now().Before(until) {
		return
	}
	w.until.Delete(w.store, o)
	s.SetConditions(o, xpv2.Condition{
		Type:               TypeConflictingWrites,
		Status:             corev1.ConditionFalse,
		Reason:             ReasonWritesAgree,
		LastTransitionTime: metav1.NewTime(s.Now()),
	})
}

func conflicting(fields []contestedField, now time.Time) xpv2.Condition {
	var texts []string
	for i, f := range fields {
		if i == maxContestedFields {
			texts = append(texts, fmt.Sprintf("%d more fields are changed back.", len(fields)-i))
			break
		}
		texts = append(texts, messageOf(f))
	}
	return xpv2.Condition{
		Type:               TypeConflictingWrites,
		Status:             corev1.ConditionTrue,
		Reason:             ReasonChangedBack,
		Message:            strings.Join(texts, " "),
		LastTransitionTime: metav1.NewTime(now),
	}
}

func messageOf(f contestedField) string {
	by := "Another writer"
	if f.manager != "" {
		by = fmt.Sprintf("Field manager %q", f.manager)
	}
	return fmt.Sprintf(
		"%s changes %s back each time this controller sets it: it is set once in %s until one of the two stops.", by,
		f.path, contestedInterval,
	)
}
