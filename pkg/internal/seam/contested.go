package seam

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// contestedAfter is how often another writer changes a field back before the inner
	// reconciler's writes of it are bounded.
	contestedAfter = 5

	// ContestedInterval is the time between two writes of a contested field.
	ContestedInterval = time.Minute

	// ContestedFor is how long a field stays contested after the last try to write it. It is
	// longer than the usual intervals of polls and of GitOps tools.
	ContestedFor = 15 * time.Minute
)

// A ContestedField is a field of spec, labels or annotations that the inner reconciler and
// another writer change back and forth.
type ContestedField struct {
	// Path of the field, such as spec.forProvider.size or metadata.labels[team].
	Path string

	// Manager is the other writer's field manager. It is empty if it is not known.
	Manager string

	// New is true in the first reconcile in which the field is contested.
	New bool
}

// A changedField is a field in which two objects differ.
type changedField struct {
	segments []string
	from, to uint64
}

func (f changedField) path() string {
	var b strings.Builder
	for i, s := range f.segments {
		switch {
		case i == 0:
			b.WriteString(s)
		case f.segments[0] == "metadata" && i == 2:
			b.WriteString("[" + s + "]")
		default:
			b.WriteString("." + s)
		}
	}
	return b.String()
}

// changedFields returns the fields in which two objects differ. It leaves out status and the
// fields that the API server sets.
func changedFields(from, to client.Object) []changedField {
	return differences(nil, nil, writtenFields(from), writtenFields(to))
}

// writtenFields returns the fields of o that writers set, as JSON.
func writtenFields(o client.Object) map[string]any {
	data, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	v, _ := decoded(data)
	content, _ := v.(map[string]any)
	metadata, _ := content["metadata"].(map[string]any)
	for k := range metadata {
		if !slices.Contains([]string{"annotations", "finalizers", "labels", "ownerReferences"}, k) {
			delete(metadata, k)
		}
	}
	for _, k := range []string{"apiVersion", "kind", "status"} {
		delete(content, k)
	}
	return content
}

// mayContest reports whether writes of this field are limited. Writes of fields that belong to
// a create, of finalizers and of owner references are not.
func (f changedField) mayContest() bool {
	switch f.segments[0] {
	case "spec":
		return true
	case "metadata":
		return len(f.segments) == 3 && (f.segments[1] == "labels" ||
			f.segments[1] == "annotations" && !IdentifiesResource(f.segments[2]) &&
				f.segments[2] != AnnotationKeyRecord)
	default:
		return false
	}
}

// differences appends the fields in which a and b differ. A list is one field.
func differences(to []changedField, segments []string, a, b any) []changedField {
	am, aok := a.(map[string]any)
	bm, bok := b.(map[string]any)
	if (aok || a == nil) && (bok || b == nil) && (aok || bok) {
		keys := slices.Collect(maps.Keys(am))
		for k := range bm {
			if _, ok := am[k]; !ok {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		for _, k := range keys {
			to = differences(to, append(slices.Clone(segments), k), am[k], bm[k])
		}
		return to
	}
	if reflect.DeepEqual(a, b) {
		return to
	}
	return append(to, changedField{segments: segments, from: hashOfJSON(a), to: hashOfJSON(b)})
}

func hashOfJSON(v any) uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(v) //nolint:errchkjson // It was decoded from JSON.
	return h.Sum64()
}

// boundContested decides about a write of o. It reports whether the write is postponed: it
// changes nothing but contested fields, and one of them was written less than an interval
// ago. Otherwise it returns the object before the write for wroteFields, or nil if that
// object is not known to be the newest.
func (s *Session) boundContested(ctx context.Context, o client.Object) (before client.Object, postponed bool) {
	if !s.options.BoundContested || s.complete(ctx) != nil {
		return nil, false
	}
	version, w := o.GetResourceVersion(), s.histories.get(o)
	if version != s.base.GetResourceVersion() || !w.fresh(version) {
		return nil, false
	}
	known, now := w.contests, s.Now()
	if len(known) == 0 {
		return s.base, false
	}

	var fields []changedField
	wait, others := time.Duration(0), false
	for _, f := range changedFields(s.base, o) {
		c := known[f.path()]
		if !f.mayContest() || c.rounds < contestedAfter || f.from == c.value || now.Sub(c.tried) >= ContestedFor {
			others = true
			continue
		}
		fields = append(fields, f)
		wait = max(wait, ContestedInterval-now.Sub(c.written))
	}
	if len(fields) == 0 {
		return s.base, false
	}
	s.contest(ctx, fields)
	if others || wait <= 0 {
		return s.base, false
	}
	s.Requeue(Within(wait))
	return s.base, true
}

// contest notes that the inner reconciler is about to write contested fields.
func (s *Session) contest(ctx context.Context, fields []changedField) {
	server, now := s.base, s.Now()
	s.histories.updateContests(s.base, now, func(all map[string]contest) {
		for _, f := range fields {
			c := all[f.path()]
			if !c.reported {
				// A cache may drop managed fields.
				if len(server.GetManagedFields()) == 0 {
					if live, err := s.live(ctx); err == nil && live != nil {
						server = live
					}
				}
				c.other = managerOf(server, f.segments, c.ours).name
				s.newlyContested = append(s.newlyContested, f.path())
			}
			c.reported, c.tried = true, now
			all[f.path()] = c
		}
	})
}

// wroteFields notes that a write led from before to server.
func (s *Session) wroteFields(before, server client.Object) {
	if before == nil {
		return
	}
	fields, now := changedFields(before, server), s.Now()
	if len(fields) == 0 {
		return
	}
	s.histories.updateContests(server, now, func(all map[string]contest) {
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

// updateContests changes a copy of the contests of an object: other goroutines may read the
// map. It drops those that have ended.
func (h *histories) updateContests(o client.Object, now time.Time, fn func(all map[string]contest)) {
	all := map[string]contest{}
	for path, was := range h.get(o).contests {
		if now.Sub(was.tried) < ContestedFor {
			all[path] = was
		}
	}
	fn(all)
	h.update(o, func(v *history) { v.contests = all })
}

// forgetContests drops the contests of the object once all of them have ended: a reconcile that
// writes nothing would keep them as long as the object exists.
func (s *Session) forgetContests() {
	contests := s.histories.get(s.base).contests
	if len(contests) == 0 {
		return
	}
	for _, c := range contests {
		if s.Now().Sub(c.tried) < ContestedFor {
			return
		}
	}
	s.histories.update(s.base, func(v *history) { v.contests = nil })
}

// Contested returns the contested fields of the object, sorted by path.
func (s *Session) Contested() []ContestedField {
	if s.base == nil {
		return nil
	}
	var out []ContestedField
	for path, c := range s.histories.get(s.base).contests {
		if c.reported && s.Now().Sub(c.tried) < ContestedFor {
			out = append(out, ContestedField{
				Path:    path,
				Manager: c.other,
				New:     slices.Contains(s.newlyContested, path),
			})
		}
	}
	slices.SortFunc(out, func(a, b ContestedField) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// managerOf returns the field manager that has written a field last or, if the field was
// removed, the object. It leaves out the excepted one. If that one owns the whole field, the
// last writer has the same field manager, and is unknown.
func managerOf(o client.Object, segments []string, except fieldManager) fieldManager {
	var owner, last fieldManager
	var owned, changed time.Time
	same := false
	for _, e := range o.GetManagedFields() {
		m := fieldManager{name: e.Manager, operation: e.Operation}
		if e.Time == nil || e.Subresource != "" {
			continue
		}
		elements, owns := ownedIn(e.FieldsV1, segments)
		if m == except {
			same = same || owns && len(elements) == 0
			continue
		}
		if !e.Time.Time.Before(changed) {
			last, changed = m, e.Time.Time
		}
		if owns && !e.Time.Time.Before(owned) {
			owner, owned = m, e.Time.Time
		}
	}
	if owner == (fieldManager{}) && !same {
		return last
	}
	return owner
}

// ownedIn reports whether managed fields have a field, or elements of it, which it returns.
func ownedIn(of *metav1.FieldsV1, segments []string) (elements map[string]any, owns bool) {
	if of == nil {
		return nil, false
	}
	fields := map[string]any{}
	if err := json.Unmarshal(of.Raw, &fields); err != nil {
		return nil, false
	}
	for _, s := range segments {
		next, ok := fields["f:"+s].(map[string]any)
		if !ok {
			return nil, false
		}
		fields = next
	}
	return fields, true
}
