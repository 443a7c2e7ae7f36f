package creation

import (
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/failure"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// lastRequest is how long the external system may take to carry out the last request of a create
// whose process was replaced, or has given up.
const lastRequest = time.Minute

// Changes are the annotations that store the next state of a create. All of them are stored
// with one write, so that an object is never between two states.
type Changes struct {
	seam.Changes

	of client.Object
}

// On returns no changes of o, to which the other functions add.
func On(o client.Object) Changes { return Changes{of: o} }

func (c Changes) set(key, value string) Changes {
	c.Changes = append(c.Changes, seam.SetAnnotation(c.of, key, value))
	return c
}

// Succeeded stores that the create succeeded at this time.
func (c Changes) Succeeded(at time.Time) Changes {
	return c.set(meta.AnnotationKeyExternalCreateSucceeded, c.ended(at))
}

// SucceededIfIncomplete stores that the create succeeded, if it is announced and has no end:
// without a record the announcement would stop the object.
func (c Changes) SucceededIfIncomplete(at time.Time) Changes {
	if !meta.ExternalCreateIncomplete(c.of) {
		return c
	}
	return c.Succeeded(at)
}

// Failed stores that the create failed at this time.
func (c Changes) Failed(at time.Time) Changes {
	return c.set(meta.AnnotationKeyExternalCreateFailed, c.ended(at))
}

// FailedWith stores that the create failed with err at this time, with its record. The record has
// the text of that end, so that a create that another writer announces later can be recognized.
//
// If err says that the external resource exists, and an earlier create succeeded, that one is stored
// as a success at this time: the external system may still hide its external resource.
func (c Changes) FailedWith(r *Record, err error, at time.Time) Changes {
	if name := meta.GetExternalName(c.of); name != "" && failure.Exists(err, name) && r.followsSuccess() &&
		c.of.GetAnnotations()[AnnotationKeyRefused] != RefusedAs(c.of) {
		out := *r
		out.Exists = true
		return c.Succeeded(at).WithRecord(out.withEnds(Ends{Succeeded: c.ended(at), Failed: endsOf(c.of).Failed}))
	}
	return c.Failed(at).WithRecord(r.withFailureText(c.ended(at)))
}

// FailedIfIncomplete stores that the create failed, if it is announced and has no end.
func (c Changes) FailedIfIncomplete(at time.Time) Changes {
	if !meta.ExternalCreateIncomplete(c.of) {
		return c
	}
	return c.Failed(at)
}

// Absent stores that the announced create created nothing. It failed when it was announced,
// not now: the next create may begin in this second, and has to be newer.
func (c Changes) Absent() Changes {
	return c.set(meta.AnnotationKeyExternalCreateFailed, c.of.GetAnnotations()[meta.AnnotationKeyExternalCreatePending])
}

// AbsentWith stores that the announced create created nothing, with its record: it has failed,
// and has no external name of its own.
func (c Changes) AbsentWith(r *Record) Changes {
	out := *r
	out.Phase, out.Name, out.Repeated, out.Abandoned, out.OpenUntil = RecordFailed, "", false, false, nil
	out.Exists = false
	return c.Absent().WithRecord(out.withFailureText(c.of.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]))
}

// Named stores the external name.
func (c Changes) Named(name string) Changes { return c.set(meta.AnnotationKeyExternalName, name) }

// CreateSucceeded stores that the create of r succeeded at this time, and removes r.
func (c Changes) CreateSucceeded(r *Record, at time.Time) Changes {
	return c.WithoutRecord().Succeeded(at).openIfRepeated(r, at)
}

// OperationSucceeded removes r, the record of an operation that succeeded at this time. A create
// that is announced and has no end succeeded, too.
func (c Changes) OperationSucceeded(r *Record, at time.Time) Changes {
	return c.WithoutRecord().SucceededIfIncomplete(at).openIfRepeated(r, at)
}

// openIfRepeated stores until when the create that r repeats may be carried out, unless that time
// has passed.
func (c Changes) openIfRepeated(r *Record, now time.Time) Changes {
	if began := r.HolderStarted(); r.Repeated && openUntil(began, r.timeout()).After(now) {
		return c.Open(began, r.timeout())
	}
	return c
}

// Found stores that the create succeeded, because its external resource was found at this time.
// If the create was repeated, its other requests may still be carried out.
func (c Changes) Found(q Question, at time.Time) Changes {
	c = c.WithoutRecord().Succeeded(at)

	switch {
	case q.Record != nil && q.Record.Repeated:
		return c.Open(at, q.Record.timeout())
	case !q.OpenUntil.IsZero():
		return c.Open(at, q.Limits.Announced)
	}
	return c
}

// Open stores that the last request of a create may still be carried out, although nothing has
// waited for it since then.
func (c Changes) Open(since time.Time, timeout time.Duration) Changes {
	return c.set(AnnotationKeyOpenUntil, openUntil(since, timeout).Format(time.RFC3339))
}

// openUntil returns until when the last request of a create may be carried out for which nothing
// has waited since then. A create takes no longer than its timeout.
func openUntil(since time.Time, timeout time.Duration) time.Time {
	return Later(since, min(timeout, lastRequest))
}

// WithRecord stores the record.
func (c Changes) WithRecord(r *Record) Changes { return c.set(AnnotationKeyRecord, r.Text()) }

// WithoutRecord removes the record that o has.
func (c Changes) WithoutRecord() Changes {
	was, existed := c.of.GetAnnotations()[AnnotationKeyRecord]
	c.Changes = append(c.Changes, seam.Change{Key: AnnotationKeyRecord, Was: was, Existed: existed, Remove: true})
	return c
}

// withFailureText returns the record of a create whose failure is stored with this text.
func (r *Record) withFailureText(failed string) *Record {
	if r.EndsBefore == nil {
		return r
	}
	return r.withEnds(Ends{Succeeded: r.EndsBefore.Succeeded, Failed: Clean(failed, 64)})
}

func (r *Record) withEnds(e Ends) *Record {
	out := *r
	out.EndsBefore = &e
	return &out
}

// Withdrawn stores that the announced create was not begun: the create that was announced
// before it counts.
func (c Changes) Withdrawn(announcement string) Changes {
	return c.set(meta.AnnotationKeyExternalCreatePending, announcement)
}

// OfAnnounced stores the changes only if no other process has announced another create since:
// they are not about that one.
func (c Changes) OfAnnounced() Changes {
	announcement, ok := c.of.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]
	if !ok {
		return c
	}
	return c.set(meta.AnnotationKeyExternalCreatePending, announcement)
}

// ended returns the text of the time at which a create ended. It is never before the
// announcement, whose clock may be ahead: upstream would treat the create as incomplete.
func (c Changes) ended(at time.Time) string {
	if at.Truncate(time.Second).Before(meta.GetExternalCreatePending(c.of)) {
		return c.of.GetAnnotations()[meta.AnnotationKeyExternalCreatePending]
	}
	return at.Format(time.RFC3339)
}

// Announce corrects the announcement of a create that upstream has just set in o. stored is the
// object on the API server. If the create announced there may still be in progress, repeated is
// its timeout, and otherwise zero.
//
// Annotations have a resolution of one second, and clocks differ. So the time is moved if
// upstream would treat the new create as ended, or if it could not be told from the last one.
func Announce(o, stored client.Object, repeated time.Duration, now time.Time) {
	if !meta.ExternalCreateIncomplete(o) {
		meta.SetExternalCreatePending(o, fromAnnotations(o).Ended.Add(time.Second))
	}
	if pendingOf(o) == pendingOf(stored) {
		meta.SetExternalCreatePending(o, meta.GetExternalCreatePending(o).Add(time.Second))
	}
	if repeated > 0 {
		On(o).Open(now, repeated).Apply(o)
	}
}

// RestoreEnds replaces the annotations about the ends of creates that upstream has set in
// memory by the annotations of stored.
func RestoreEnds(o, stored client.Object) {
	for _, k := range []string{meta.AnnotationKeyExternalCreateSucceeded, meta.AnnotationKeyExternalCreateFailed} {
		if was, ok := stored.GetAnnotations()[k]; ok {
			meta.AddAnnotations(o, map[string]string{k: was})
		} else {
			meta.RemoveAnnotations(o, k)
		}
	}
}

// Unannounce removes the announcement of a recorded create, and the record, from a copy of an
// object. Then Graft does not look up the outcome of that create.
func Unannounce(o client.Object) {
	if _, ok := o.GetAnnotations()[AnnotationKeyRecord]; ok {
		meta.RemoveAnnotations(o, AnnotationKeyRecord, meta.AnnotationKeyExternalCreatePending)
	}
}
