package reconciler

import (
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// maxReplaced is how often in a row a report is restored at once.
const maxReplaced = 3

// A stage of a reconcile writes a report: before the inner reconciler reads the object, with
// its status writes, or when it has returned.
type stage int

const (
	beforeInner stage = iota
	withInner
	afterInner
)

// A pendingReport is the report of a stage that the API server doesn't have, and whether the
// stage leaves it unwritten for now.
type pendingReport struct {
	text   string
	yields bool
}

// A restorer limits how often reports are restored that another writer replaces.
type restorer struct {
	objects  seam.Kind
	memory   *memory
	interval time.Duration
	log      logging.Logger

	// pending are the reports of the stages of the reconcile.
	pending seam.Slot[[3]pendingReport]
}

// limit returns cs, or nil if they are not to be written yet: another writer replaces them
// again and again, and each write causes another reconcile.
func (d *restorer) limit(s *seam.Session, server client.Object, at stage, cs []xpv2.Condition) []xpv2.Condition {
	v := &d.pending.In(s)[at]
	*v = pendingReport{}
	if !slices.ContainsFunc(cs, func(c xpv2.Condition) bool { return !d.objects.ConditionOf(server, c.Type).Equal(c) }) {
		return cs
	}
	r, _ := d.memory.get(server)
	rest := d.interval - s.Now().Sub(r.restored)
	v.text = string(cs[1].Reason) + cs[1].Message
	if v.yields = v.text == r.written[at] && r.replaced >= maxReplaced && rest > 0; v.yields {
		s.Requeue(seam.Within(rest))
		return nil
	}
	return cs
}

// recordWritten counts a report that a stage has written.
func (d *restorer) recordWritten(s *seam.Session, o client.Object, at stage) {
	v := d.pending.In(s)[at]
	if v.text == "" || v.yields {
		return
	}
	replaced := 0

	d.memory.update(o, func(r *remembered) {
		switch {
		case s.Now().Sub(r.restored) >= 2*d.interval:
			r.replaced = 0
		case v.text == r.written[at]:
			r.replaced++
			replaced = r.replaced
		}
		r.written[at], r.restored = v.text, s.Now()
	})

	if replaced == maxReplaced {
		d.log.Info("Another writer replaces what is reported of a deletion: it is restored less often", "uid", o.GetUID(), "interval", d.interval)
	}
}

// recordInnerWrite counts the report in the last status write of the inner reconciler, if
// that succeeded.
func (d *restorer) recordInnerWrite(s *seam.Session) {
	v := &d.pending.In(s)[withInner]
	if c := d.objects.ConditionOf(s.Base(), TypeDeleting); string(c.Reason)+c.Message == v.text {
		d.recordWritten(s, s.Base(), withInner)
	}
	*v = pendingReport{}
}
