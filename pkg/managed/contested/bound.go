package contested

import (
	"context"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

const (
	// contestedAfter is how often another writer changes a field back before the
	// reconciler's writes of it are bounded.
	contestedAfter = 5

	// contestedInterval is the time between two writes of a contested field.
	contestedInterval = time.Minute

	// contestedFor is how long a field stays contested after the last try to write it. It is
	// longer than the usual intervals of polls and of GitOps tools.
	contestedFor = 15 * time.Minute
)

// A contest is the history of one field.
type contest struct {
	// value is a hash of the value that was written last, at a time.
	value   uint64
	written time.Time

	// rounds counts the writes that replaced another writer's change of value.
	rounds int

	// ours identifies the reconciler's own field manager.
	ours fieldManager

	// tried is when the reconciler last wrote the field, or was to write it.
	tried time.Time

	// reported is true once the field counts as contested. other is the other writer then.
	reported bool
	other    string
}

// over reports whether the field is not contested any more.
func (c contest) over(now time.Time) bool { return now.Sub(c.tried) >= contestedFor }

// A contestedField is a field of spec, labels or annotations that the reconciler and another writer change back and
// forth.
type contestedField struct {
	path    string
	manager string // of the other writer, or empty if it is not known
	isNew   bool   // in the first reconcile in which the field is contested
}

// contests bounds writes of fields that another writer changes back each time. It is safe for concurrent use.
type contests struct {
	live  client.Reader
	store *store.Store
	key   store.Key[map[string]contest]

	// started are the paths of the fields that are contested since this reconcile.
	started seam.Slot[[]string]
}

func (b *contests) open(_ context.Context, s *seam.Session, o client.Object) error {
	b.forget(o, s.Now())
	return nil
}

// forget the fields of an object once none is contested any more: a reconcile that writes nothing would keep
// them as long as the object exists.
func (b *contests) forget(o client.Object, now time.Time) {
	all := b.key.Get(b.store, o)
	for _, c := range all {
		if !c.over(now) {
			return
		}
	}
	if len(all) > 0 {
		b.key.Delete(b.store, o)
	}
}

// bound decides about a write of o. The write is postponed if it changes nothing but contested fields, and one of them
// was written less than an interval ago.
func (b *contests) bound(
	ctx context.Context, s *seam.Session, o client.Object,
) (stored func(server client.Object), postponed bool) {
	before := b.before(ctx, s, o)
	if before == nil {
		return nil, false
	}
	stored = func(server client.Object) { b.wrote(s.Now(), before, server) }
	known, now := b.key.Get(b.store, o), s.Now()
	if len(known) == 0 {
		return stored, false
	}

	var fields []changedField
	wait, others := time.Duration(0), false
	for _, f := range changedFields(before, o) {
		c := known[f.path()]
		if !f.mayContest() || c.rounds < contestedAfter || f.from == c.value || c.over(now) {
			others = true
			continue
		}
		fields = append(fields, f)
		wait = max(wait, contestedInterval-now.Sub(c.written))
	}
	if len(fields) == 0 {
		return stored, false
	}
	b.contest(ctx, s, before, fields)
	if others || wait <= 0 {
		return stored, false
	}
	s.Requeue(seam.Within(wait))
	return nil, true
}

// before returns the object that a write of o replaces, or nil if that is not known.
func (b *contests) before(ctx context.Context, s *seam.Session, o client.Object) client.Object {
	if s.Knows(o) {
		return s.Base()
	}
	if live := b.read(ctx, o); live != nil && live.GetResourceVersion() == o.GetResourceVersion() {
		return live
	}
	return nil
}

// read o from the API server. It returns nil if that fails: nothing is bounded then.
func (b *contests) read(ctx context.Context, o client.Object) client.Object {
	live := seam.Empty(o)
	if err := b.live.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil || live.GetUID() != o.GetUID() {
		return nil
	}
	return live
}

// contest notes that the reconciler is about to write contested fields.
func (b *contests) contest(ctx context.Context, s *seam.Session, server client.Object, fields []changedField) {
	now := s.Now()
	b.update(server, now, func(all map[string]contest) {
		for _, f := range fields {
			c := all[f.path()]
			if !c.reported {
				// A cache may drop managed fields.
				if len(server.GetManagedFields()) == 0 {
					if live := b.read(ctx, server); live != nil {
						server = live
					}
				}
				c.other = managerOf(server, f.segments, c.ours).name
				started := b.started.In(s)
				*started = append(*started, f.path())
			}
			c.reported, c.tried = true, now
			all[f.path()] = c
		}
	})
}

// wrote notes that a write led from before to server.
func (b *contests) wrote(now time.Time, before, server client.Object) {
	fields := changedFields(before, server)
	if len(fields) == 0 {
		return
	}
	b.update(server, now, func(all map[string]contest) {
		for _, f := range fields {
			if !f.mayContest() {
				continue
			}
			c, ok := all[f.path()]
			if ok && f.from != c.value {
				c.rounds++
			}
			c.value, c.written, c.tried, c.ours = f.to, now, now, managerOf(server, f.segments, fieldManager{})
			all[f.path()] = c
		}
	})
}

// update changes a copy of the contests of an object: other goroutines may read the map. It drops those that are over.
func (b *contests) update(o client.Object, now time.Time, fn func(all map[string]contest)) {
	all := map[string]contest{}
	for path, c := range b.key.Get(b.store, o) {
		if !c.over(now) {
			all[path] = c
		}
	}
	fn(all)
	b.key.Update(b.store, o, func(v *map[string]contest) { *v = all })
}

// of returns the contested fields of the object of a session, sorted by path.
func (b *contests) of(s *seam.Session) []contestedField {
	var out []contestedField
	for path, c := range b.key.Get(b.store, s.Base()) {
		if c.reported && !c.over(s.Now()) {
			out = append(out, contestedField{
				path: path, manager: c.other, isNew: slices.Contains(*b.started.In(s), path),
			})
		}
	}
	slices.SortFunc(out, func(a, b contestedField) int { return strings.Compare(a.path, b.path) })
	return out
}
