package reconciler

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A conditionsKind finds the conditions of the objects of a kind, at status.conditions.
type conditionsKind struct {
	// goType is the Go type of the kind if it has conditions. Unstructured objects may have some although they have no
	// status.conditions then.
	goType reflect.Type
}

// newConditionsKind returns an error if the kind's Go type has status.conditions that can't hold a Crossplane condition.
func newConditionsKind(of schema.GroupVersionKind, s *runtime.Scheme) (conditionsKind, error) {
	v, _ := s.New(of) // An unknown kind has no Go type.
	o, ok := v.(client.Object)
	if _, un := v.(runtime.Unstructured); !ok || un {
		return conditionsKind{}, nil
	}
	k := conditionsKind{goType: reflect.TypeOf(o)}
	if _, ok := o.(resource.Conditioned); ok {
		return k, nil
	}

	// Try whether the type keeps a condition.
	c, want := typedConditions(o), xpv2.Deleting().WithMessage("message")
	c.SetConditions(want)
	wrong := (*json.UnmarshalTypeError)(nil)
	c.list, _ = decodeConditions(statusConditions(o))
	switch {
	case c.err == nil && len(c.list) == 0, errors.As(c.err, &wrong) && wrong.Field == "status":
		return conditionsKind{}, nil
	case c.err != nil || !c.GetCondition(want.Type).Equal(want):
		return conditionsKind{}, errors.Errorf(
			"the conditions of %s can't hold a condition: use []metav1.Condition, or implement resource.Conditioned",
			k.goType,
		)
	}
	return k, nil
}

// of returns the conditions of an object of the kind. It returns false if the object cannot have conditions, and for
// an unstructured object with a value of another form at status.conditions.
func (k conditionsKind) of(o client.Object) (resource.Conditioned, bool) {
	if u, ok := o.(runtime.Unstructured); ok {
		content := u.UnstructuredContent()
		v, found, err := unstructured.NestedFieldNoCopy(content, "status", "conditions")
		_, conditioned := o.(resource.Conditioned)
		list, ok := decodeConditions(v)
		return &jsonConditions{list: list, store: func(list []map[string]any) error {
			entries := make([]any, len(list))
			for i := range list {
				entries[i] = list[i]
			}
			if content["status"] == nil {
				content["status"] = map[string]any{}
			}
			return unstructured.SetNestedSlice(content, entries, "status", "conditions")
		}}, err == nil && ok && (found && v != nil || conditioned || k.goType != nil)
	}
	if c, ok := o.(resource.Conditioned); ok {
		return c, true
	}
	return typedConditions(o), k.goType != nil && reflect.TypeOf(o) == k.goType
}

// typedConditions returns the conditions of an object of a Go type without methods for them.
func typedConditions(o client.Object) *jsonConditions {
	list, _ := decodeConditions(statusConditions(o))
	return &jsonConditions{list: list, store: func(list []map[string]any) error {
		data, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": list}})
		if err != nil {
			return err
		}
		return json.Unmarshal(data, o)
	}}
}

// statusConditions returns status.conditions of o as JSON.
func statusConditions(o client.Object) json.RawMessage {
	has := struct {
		Status struct {
			Conditions json.RawMessage `json:"conditions"`
		} `json:"status"`
	}{}
	data, _ := json.Marshal(o)     //nolint:errchkjson // It has no conditions then.
	_ = json.Unmarshal(data, &has) // As above.
	return has.Status.Conditions
}

// decodeConditions returns a list of conditions with all their fields. It returns false for a value that is none.
func decodeConditions(v any) ([]map[string]any, bool) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, false
	}
	var form []struct {
		Type, Status, Reason, Message, LastTransitionTime string
		ObservedGeneration                                int64
	}
	var entries []any
	if json.Unmarshal(data, &form) != nil || utiljson.Unmarshal(data, &entries) != nil {
		return nil, false
	}
	list := make([]map[string]any, len(entries))
	for i, e := range entries {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, false
		}
		list[i] = m
	}
	return list, true
}

// jsonConditions are conditions as JSON has them, which Crossplane's share with metav1.Condition. SetConditions leaves
// other conditions, and other fields of a condition, unchanged.
type jsonConditions struct {
	list  []map[string]any
	store func(list []map[string]any) error
	err   error // of the last store
}

// GetCondition returns a condition.
func (c *jsonConditions) GetCondition(t xpv2.ConditionType) xpv2.Condition {
	for _, m := range c.list {
		if m["type"] == string(t) {
			return conditionFrom(m)
		}
	}
	return xpv2.Condition{Type: t, Status: corev1.ConditionUnknown}
}

// SetConditions sets conditions.
func (c *jsonConditions) SetConditions(cs ...xpv2.Condition) {
	for _, want := range cs {
		i := slices.IndexFunc(c.list, func(m map[string]any) bool { return m["type"] == string(want.Type) })
		if i < 0 {
			i, c.list = len(c.list), append(c.list, map[string]any{})
		}
		if conditionFrom(c.list[i]).Equal(want) {
			continue
		}

		// metav1.Condition requires a message, which may be empty.
		maps.Copy(c.list[i], map[string]any{
			"type": string(want.Type), "status": string(want.Status), "reason": string(want.Reason),
			"message": want.Message, "lastTransitionTime": want.LastTransitionTime.UTC().Format(time.RFC3339),
			"observedGeneration": want.ObservedGeneration,
		})
		if want.ObservedGeneration == 0 {
			delete(c.list[i], "observedGeneration")
		}
	}
	c.err = c.store(c.list)
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
	c.ObservedGeneration, _ = m["observedGeneration"].(int64)
	return c
}
