package contested

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

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
	content := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&content); err != nil {
		return nil
	}
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
			f.segments[1] == "annotations" && !seam.IdentifiesResource(f.segments[2]) &&
				f.segments[2] != seam.AnnotationKeyRecord)
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

type fieldManager struct {
	name      string
	operation metav1.ManagedFieldsOperationType
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
