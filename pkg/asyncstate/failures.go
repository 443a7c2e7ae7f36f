package asyncstate

import (
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// failure is what the last attempt ended with. The text comes from memory, or from
// the conditions of mg as they are stored; the record has its class alone.
func (t *Tracker) failure(mg resource.Managed, r *creation.Record) error {
	if text := t.known.failureOf(mg, r); text != "" {
		return errors.New(text)
	}
	if c := mg.GetCondition(TypeOperation); c.Reason == ReasonFailed || c.Reason == ReasonInterrupted {
		if text, ok := strings.CutPrefix(c.Message, t.attemptFailed(mg, r)); ok && text != c.Message {
			return errors.New(text)
		}
	}

	// While the next attempt runs, that condition says something else.
	if c := mg.GetCondition(xpv2.TypeSynced); c.Reason == xpv2.ReasonReconcileError && r.Phase == creation.RecordRunning {
		if _, text, ok := strings.Cut(c.Message, prefixFailed(r)); ok {
			return errors.New(text)
		}
	}
	return errors.New(r.Error)
}

func prefixFailed(r *creation.Record) string { return string(r.Type) + " failed: " }

// attemptFailed says which attempt failed, and when the next is made.
func (t *Tracker) attemptFailed(mg resource.Managed, r *creation.Record) string {
	if r.Ended == nil {
		return ""
	}
	m := nameOf(attemptOf(r)) + ", failed at " + seam.Stamp(r.Ended.Time)
	if next := t.retryAt(r); !next.IsZero() && (r.Type == creation.Delete || !meta.WasDeleted(mg)) {
		m += ", next attempt at " + seam.Stamp(next)
	}
	return m + ": "
}
