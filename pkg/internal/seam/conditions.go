package seam

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Conditioned returns the conditions of o, which is of this kind, at status.conditions. It
// returns false if o cannot have conditions, and for an unstructured object with a value of
// another form there.
//
// An object may be a resource.Conditioned, an unstructured object, or of a Go type that
// ConditionsError accepts. An unstructured object without status.conditions can have
// conditions only if the scheme has a Go type with conditions for its kind.
func (k Kind) Conditioned(o client.Object) (resource.Conditioned, bool) {
	if u, ok := o.(runtime.Unstructured); ok {
		content := u.UnstructuredContent()
		found, ok := hasConditions(content)
		_, is := o.(resource.Conditioned)
		return contentConditions{content: content}, ok && (found || is || k.conditioned)
	}

	if c, ok := o.(resource.Conditioned); ok {
		return c, true
	}
	return fieldConditions{object: o}, k.conditioned && reflect.TypeOf(o) == k.goType
}

// ConditionsError returns an error if the kind's Go type has status.conditions that
// conditions can't be written to.
func (k Kind) ConditionsError() error { return k.conditionsErr }

// supportsConditions reports whether objects of a Go type have conditions. It returns an
// error if their type cannot hold a Crossplane condition.
func supportsConditions(of reflect.Type) (bool, error) {
	o, ok := reflect.New(of.Elem()).Interface().(client.Object)
	if !ok {
		return false, nil
	}
	if _, ok := o.(runtime.Unstructured); ok {
		return false, nil
	}
	if _, ok := o.(resource.Conditioned); ok {
		return true, nil
	}
	list, ok := conditionsField(o, true)
	if !ok {
		return false, nil
	}

	// Try whether the type keeps a condition.
	want, c := xpv2.Deleting().WithMessage("message"), fieldConditions{object: o}
	if list.Kind() == reflect.Slice {
		c.SetConditions(want)
	}

	if list.Kind() != reflect.Slice || !c.GetCondition(want.Type).Equal(want) {
		return false, errors.Errorf(
			"the conditions of %s are of type %s, which can't hold a condition: use []metav1.Condition, or implement resource.Conditioned",
			of, list.Type(),
		)
	}
	return true, nil
}

// conditionsField returns the field status.conditions of an object of a Go type, or false if
// there is none. It sets nil pointers on the path if set is true, and otherwise returns
// false for them.
func conditionsField(o client.Object, set bool) (reflect.Value, bool) {
	status, ok := jsonField(reflect.ValueOf(o), "status", set)
	if !ok {
		return reflect.Value{}, false
	}
	return jsonField(status, "conditions", set)
}

// jsonField returns the field of a struct that has the supplied name in JSON, also
// if it is one of an inlined struct.
func jsonField(v reflect.Value, name string, set bool) (reflect.Value, bool) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			if !set || !v.CanSet() {
				return reflect.Value{}, false
			}
			v.Set(reflect.New(v.Type().Elem()))
		}

		v = v.Elem()
	}

	if v.Kind() != reflect.Struct {
		return reflect.Value{}, false
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name && f.IsExported() {
			return v.Field(i), true
		}
		if tag == "" && f.Anonymous {
			if in, ok := jsonField(v.Field(i), name, set); ok {
				return in, true
			}
		}
	}
	return reflect.Value{}, false
}

// fieldConditions are the conditions of an object of a Go type, such as []metav1.Condition.
// They are read and written as JSON, which their type shares with Crossplane's.
type fieldConditions struct{ object client.Object }

func (c fieldConditions) all() []xpv2.Condition {
	list, ok := conditionsField(c.object, false)
	if !ok {
		return nil
	}
	data, err := json.Marshal(list.Interface())
	if err != nil {
		return nil
	}
	var entries []map[string]any
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil
	}

	// A field in another form than Crossplane's must not hide the condition.
	out := make([]xpv2.Condition, len(entries))
	for i, m := range entries {
		out[i] = conditionFrom(m)
	}
	return out
}

// GetCondition returns a condition.
func (c fieldConditions) GetCondition(t xpv2.ConditionType) xpv2.Condition {
	s := xpv2.ConditionedStatus{Conditions: c.all()}
	return s.GetCondition(t)
}

// SetConditions sets conditions.
func (c fieldConditions) SetConditions(cs ...xpv2.Condition) {
	list, ok := conditionsField(c.object, true)
	if !ok {
		return
	}
	for _, want := range cs {
		had := c.all()
		i := slices.IndexFunc(had, func(h xpv2.Condition) bool { return h.Type == want.Type })
		entry := reflect.New(list.Type().Elem())

		if i >= 0 {
			if had[i].Equal(want) {
				continue
			}
			entry.Elem().Set(list.Index(i))
		}

		// metav1.Condition has no omitempty: empty fields are set, too.
		data, err := json.Marshal(metav1.Condition{
			Type:               string(want.Type),
			Status:             metav1.ConditionStatus(want.Status),
			ObservedGeneration: want.ObservedGeneration,
			LastTransitionTime: want.LastTransitionTime,
			Reason:             string(want.Reason),
			Message:            want.Message,
		})
		if err != nil || json.Unmarshal(data, entry.Interface()) != nil {
			continue // supportsConditions would have found out.
		}
		if i >= 0 {
			list.Index(i).Set(entry.Elem())
		} else {
			list.Set(reflect.Append(list, entry.Elem()))
		}
	}
}

// contentConditions are the conditions of an unstructured object that hasConditions has
// checked. SetConditions leaves other conditions unchanged, and sets empty messages, which
// metav1.Condition requires.
type contentConditions struct{ content map[string]any }

func (c contentConditions) list() []any {
	v, _, _ := unstructured.NestedFieldNoCopy(c.content, "status", "conditions")
	list, _ := v.([]any)
	return list
}

// GetCondition returns a condition.
func (c contentConditions) GetCondition(t xpv2.ConditionType) xpv2.Condition {
	for _, v := range c.list() {
		if m, _ := v.(map[string]any); m["type"] == string(t) {
			return conditionFrom(m)
		}
	}
	return xpv2.Condition{Type: t, Status: corev1.ConditionUnknown}
}

// SetConditions sets conditions.
func (c contentConditions) SetConditions(cs ...xpv2.Condition) {
	list := slices.Clone(c.list())

	for _, want := range cs {
		entry := map[string]any{}
		i := slices.IndexFunc(list, func(v any) bool {
			m, _ := v.(map[string]any)
			return m["type"] == string(want.Type)
		})

		if i >= 0 {
			m, _ := list[i].(map[string]any)
			if conditionFrom(m).Equal(want) {
				continue
			}
			entry = maps.Clone(m)
		}

		entry["type"], entry["status"], entry["reason"], entry["message"] = string(want.Type), string(want.Status),
			string(want.Reason), want.Message
		entry["lastTransitionTime"] = want.LastTransitionTime.UTC().Format(time.RFC3339)
		delete(entry, "observedGeneration")
		if want.ObservedGeneration != 0 {
			entry["observedGeneration"] = want.ObservedGeneration
		}

		if i >= 0 {
			list[i] = entry
		} else {
			list = append(list, entry)
		}
	}

	// hasConditions has checked that it has no other type.
	status, ok := c.content["status"].(map[string]any)
	if !ok {
		status = map[string]any{}
		c.content["status"] = status
	}
	status["conditions"] = list
}

// conditionFrom decodes a condition, and leaves fields of another form empty.
func conditionFrom(m map[string]any) xpv2.Condition {
	text := func(k string) string { s, _ := m[k].(string); return s }

	c := xpv2.Condition{
		Type:    xpv2.ConditionType(text("type")),
		Status:  corev1.ConditionStatus(text("status")),
		Reason:  xpv2.ConditionReason(text("reason")),
		Message: text("message"),
	}

	if t, err := time.Parse(time.RFC3339, text("lastTransitionTime")); err == nil {
		c.LastTransitionTime = metav1.NewTime(t)
	}

	switch n := m["observedGeneration"].(type) {
	case int64:
		c.ObservedGeneration = n
	case float64:
		c.ObservedGeneration = int64(n)
	}
	return c
}

// hasConditions reports whether content has a value at status.conditions, and whether that
// value can be decoded as conditions. A value that only its JSON makes decodable, such as an
// int or a list of structs that an inner reconciler has set, is replaced by the decoded JSON.
func hasConditions(content map[string]any) (found, ok bool) {
	v, found, err := unstructured.NestedFieldNoCopy(content, "status", "conditions")

	switch {
	case err != nil:
		return false, false
	case !found || v == nil:
		return false, true
	case areConditions(v):
		return true, true
	}

	data, _ := json.Marshal(v) //nolint:errchkjson // Nothing is decoded then.
	if v, ok = decoded(data); !ok || !areConditions(v) {
		return false, false
	}
	return true, unstructured.SetNestedField(content, v, "status", "conditions") == nil
}

// areConditions reports whether v can be decoded as conditions.
func areConditions(v any) bool {
	list, ok := v.([]any)
	return ok && !slices.ContainsFunc(list, func(c any) bool { return !isCondition(c) })
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

// conditionsOf returns a copy of the list at status.conditions of o, which is invalid if
// there is none.
func (k Kind) conditionsOf(o client.Object) reflect.Value {
	list, ok := conditionsField(o, false)
	if u, is := o.(runtime.Unstructured); is {
		v, _, _ := unstructured.NestedFieldNoCopy(u.UnstructuredContent(), "status", "conditions")
		list, ok = reflect.ValueOf(v), v != nil
	}
	if !ok || list.Kind() != reflect.Slice {
		return reflect.Value{}
	}
	return reflect.AppendSlice(reflect.MakeSlice(list.Type(), 0, list.Len()), list)
}

// setConditions sets the list at status.conditions of o, and reports whether that changed
// it.
func (k Kind) setConditions(o client.Object, list reflect.Value) bool {
	was := k.conditionsOf(o)
	if !was.IsValid() || list.IsValid() && reflect.DeepEqual(was.Interface(), list.Interface()) {
		return false
	}
	if !list.IsValid() {
		list = reflect.Zero(was.Type())
	}
	if u, ok := o.(runtime.Unstructured); ok {
		status, _ := u.UnstructuredContent()["status"].(map[string]any)
		if status["conditions"] = list.Interface(); list.IsNil() {
			delete(status, "conditions")
		}
		return true
	}
	field, _ := conditionsField(o, false)
	field.Set(list)
	return true
}

// conditionType returns the type of an entry of a list of conditions.
func conditionType(c reflect.Value) xpv2.ConditionType {
	if m, ok := c.Interface().(map[string]any); ok {
		t, _ := m["type"].(string)
		return xpv2.ConditionType(t)
	}
	if f, ok := jsonField(c, "type", false); ok && f.Kind() == reflect.String {
		return xpv2.ConditionType(f.String())
	}
	return ""
}

// ConditionOf returns the condition of that type of o, which is of this kind, or the
// zero condition if o has no conditions.
func (k Kind) ConditionOf(o client.Object, t xpv2.ConditionType) xpv2.Condition {
	if c, ok := k.Conditioned(o); ok {
		return c.GetCondition(t)
	}
	return xpv2.Condition{}
}

// ConditionOf returns the condition of that type of o, or the zero condition if o is
// of a Go type without methods for conditions, or has none.
func ConditionOf(o client.Object, t xpv2.ConditionType) xpv2.Condition {
	return Kind{}.ConditionOf(o, t)
}
