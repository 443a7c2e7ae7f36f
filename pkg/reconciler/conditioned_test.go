package reconciler

import (
	"reflect"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// TestConditionsOfUnstructuredObject shows which values count as conditions.
func TestConditionsOfUnstructuredObject(t *testing.T) {
	conditions := func(v any) map[string]any { return map[string]any{"status": map[string]any{"conditions": v}} }
	cases := map[string]struct {
		reason    string
		content   map[string]any
		found, ok bool
		observed  int64
	}{
		"NoStatus": {reason: "Without status there is nothing wrong.", content: map[string]any{}, ok: true},
		"Null":     {reason: "Null is no conditions.", content: conditions(nil), ok: true},
		"Empty": {
			reason:  "An empty list is a list of conditions.",
			content: conditions([]any{}),
			found:   true,
			ok:      true,
		},
		"Conditions": {
			reason: "Conditions are conditions.",
			content: conditions([]any{map[string]any{
				"type":               "Ready",
				"status":             "True",
				"observedGeneration": int64(1),
			}}),
			found:    true,
			ok:       true,
			observed: 1,
		},
		"Decoded": {
			reason:   "A decoder may have made a float of a generation.",
			content:  conditions([]any{map[string]any{"type": "Ready", "observedGeneration": 1.0}}),
			found:    true,
			ok:       true,
			observed: 1,
		},
		"GoList": {
			reason:   "As above.",
			content:  conditions([]xpv2.Condition{xpv2.Creating().WithObservedGeneration(1)}),
			found:    true,
			ok:       true,
			observed: 1,
		},
		"GoFunction": {reason: "What JSON doesn't take is none.", content: conditions([]any{func() {}})},
		"NullStatus": {
			reason:  "A status that is null has nothing wrong.",
			content: map[string]any{"status": nil},
			ok:      true,
		},
		"StatusIsText": {
			reason:  "A status that is text has no conditions.",
			content: map[string]any{"status": "ready"},
		},
		"Map":       {reason: "A map is no list.", content: conditions(map[string]any{"Ready": "True"})},
		"OtherType": {reason: "A type is text.", content: conditions([]any{map[string]any{"type": int64(1)}})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: tc.content}
			c, found := conditionsKind{}.of(u)
			_, ok := conditionsKind{goType: reflect.TypeFor[*textual]()}.of(u)
			testkit.ExpectEqual(
				t, tc.reason, "of(...) without and with a type, generation", []any{tc.found, tc.ok, tc.observed},
				[]any{found, ok, c.GetCondition(xpv2.TypeReady).ObservedGeneration},
			)
			if ok {
				c.SetConditions(xpv2.Available())
				c, _ = conditionsKind{}.of(u)
				ready := c.GetCondition(xpv2.TypeReady)
				testkit.ExpectEqual(
					t, "A condition without a generation has none of before.", "status, generation",
					[]any{corev1.ConditionTrue, int64(0)},
					[]any{
						ready.Status, ready.ObservedGeneration,
					},
				)
			}
		})
	}
}

// A textual object has times in its conditions that may be any text, and its status in a
// struct that may be part of several types.
type textual struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	textualPart       `json:",inline"`
}

type textualPart struct {
	Status textualStatus `json:"status,omitempty"`
}

type textualStatus struct {
	Conditions []textualCondition `json:"conditions,omitempty"`
}

type textualCondition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	LastTransitionTime string `json:"lastTransitionTime"`
	Severity           string `json:"severity"`
}

func (o *textual) DeepCopyObject() runtime.Object { c := *o; return &c }

// A condition whose time is none is one of the conditions.
func TestConditionsWithTimesOfAnotherForm(t *testing.T) {
	other := textualCondition{Type: "Other", Status: "True", LastTransitionTime: "yesterday"}
	o := &textual{
		textualPart: textualPart{
			Status: textualStatus{
				Conditions: []textualCondition{{Type: "Ready", Status: "False", Severity: "low"}, other},
			},
		},
	}
	scheme, gvk := runtime.NewScheme(), schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Example"}
	scheme.AddKnownTypeWithName(gvk, o)
	k, err := newConditionsKind(gvk, scheme)
	c, ok := k.of(o)
	if err != nil || !ok {
		t.Fatalf("of(...): want conditions, got error %v", err)
	}
	for i := range 2 {
		ready := xpv2.Available()
		ready.LastTransitionTime = metav1.Date(2026, 1, 2, 3+i, 4, 5, 0, time.UTC)
		c.SetConditions(ready)
	}
	want := []textualCondition{{
		Type:               "Ready",
		Status:             "True",
		Reason:             "Available",
		LastTransitionTime: "2026-01-02T03:04:05Z",
		Severity:           "low",
	}, other}
	testkit.ExpectEqual(
		t, "A condition is set in its place, and keeps what else it has, and its time.", "SetConditions(...)", want,
		o.Status.Conditions,
	)
}
