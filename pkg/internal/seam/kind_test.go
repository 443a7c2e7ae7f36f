package seam

import (
	"context"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
)

// An ordinary object has conditions, and no methods for them.
type ordinary struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Status ordinaryStatus `json:"status,omitempty"`
}

type ordinaryStatus struct {
	Phase      string             `json:"phase,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

func (o *ordinary) DeepCopyObject() runtime.Object { c := *o; return &c }

// An inlined object has its status in a struct that is part of several types.
type inlined struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	inlinedStatus     `json:",inline"`
}

type inlinedStatus struct {
	Status ordinaryStatus `json:"status,omitempty"`
}

func (o *inlined) DeepCopyObject() runtime.Object { c := *o; return &c }

// A status is found and kept also if it is in an inlined struct.
func TestMoveInlinedStatus(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Inlined"}
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(gvk, &inlined{})
	k, a, b := NewKind(gvk, s), &inlined{}, &inlined{inlinedStatus: inlinedStatus{Status: ordinaryStatus{Phase: "fine"}}}
	before := k.statusEqual(a, b)
	k.moveStatus(a, b)
	wants(t, "", "equal, phase, equal once moved", []any{false, "fine", true}, []any{before, a.Status.Phase, k.statusEqual(a, b)})
}

func ordinaryKind() Kind {
	gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Ordinary"}
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(gvk, &ordinary{})
	return NewKind(gvk, s)
}

// The conditions of an object without methods for them are found by their JSON name.
func TestConditionsOfOrdinaryObject(t *testing.T) {
	k, o := ordinaryKind(), &ordinary{}
	if err := k.ConditionsError(); err != nil {
		t.Fatalf("ConditionsError(): %v", err)
	}
	c, ok := k.Conditioned(o)
	if !ok {
		t.Fatal("Conditioned(...): want conditions")
	}
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	deleting, synced := xpv2.Deleting().WithMessage("why"), xpv2.ReconcileSuccess()
	deleting.LastTransitionTime, synced.LastTransitionTime = now, now
	c.SetConditions(xpv2.Available(), synced)
	c.SetConditions(deleting)
	want := []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionFalse, LastTransitionTime: now, Reason: "Deleting", Message: "why"},
		{Type: "Synced", Status: metav1.ConditionTrue, LastTransitionTime: now, Reason: "ReconcileSuccess"},
	}
	sameTime := cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })
	wants(t, "", "SetConditions(...)", want, o.Status.Conditions, sameTime)
	wants(t, "", "ConditionOf(...)", deleting, k.ConditionOf(o, xpv2.TypeReady), sameTime)
}

// An unstructured object has conditions if what it has looks like conditions.
func TestConditionsOfUnstructuredObject(t *testing.T) {
	conditions := func(v any) map[string]any { return map[string]any{"status": map[string]any{"conditions": v}} }
	cases := map[string]struct {
		reason    string
		content   map[string]any
		found, ok bool
	}{
		"NoStatus":     {reason: "Without status there is nothing wrong.", content: map[string]any{}, ok: true},
		"NoConditions": {reason: "Without conditions there is nothing wrong.", content: map[string]any{"status": map[string]any{}}, ok: true},
		"Null":         {reason: "Null is no conditions.", content: conditions(nil), ok: true},
		"Empty":        {reason: "An empty list is a list of conditions.", content: conditions([]any{}), found: true, ok: true},
		"Conditions":   {reason: "Conditions are conditions.", content: conditions([]any{map[string]any{"type": "Ready", "status": "True", "observedGeneration": int64(1)}}), found: true, ok: true},
		"Decoded":      {reason: "A decoder may have made a float of a generation.", content: conditions([]any{map[string]any{"type": "Ready", "observedGeneration": 1.0}}), found: true, ok: true},
		"StatusIsText": {reason: "A status that is text has no conditions.", content: map[string]any{"status": "ready"}},
		"Map":          {reason: "A map is no list.", content: conditions(map[string]any{"Ready": "True"})},
		"Texts":        {reason: "Texts are no conditions.", content: conditions([]any{"Ready"})},
		"OtherType":    {reason: "A type is text.", content: conditions([]any{map[string]any{"type": int64(1)}})},
		"OtherNumber":  {reason: "A generation is a number.", content: conditions([]any{map[string]any{"type": "Ready", "observedGeneration": "1"}})},
		"SecondIsOdd":  {reason: "Each must be a condition.", content: conditions([]any{map[string]any{"type": "Ready"}, "Synced"})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			found, ok := hasConditions(tc.content)
			if found != tc.found || ok != tc.ok {
				t.Errorf("\n%s\nhasConditions(...): want %t, %t; got %t, %t", tc.reason, tc.found, tc.ok, found, ok)
			}
			_, ok = Kind{}.Conditioned(&unstructured.Unstructured{Object: tc.content})
			if want := tc.found && tc.ok; ok != want {
				t.Errorf("\n%s\nConditioned(...): want %t, got %t", tc.reason, want, ok)
			}
		})
	}
}

func TestStatusEqual(t *testing.T) {
	buckets := NewKind(testkit.BucketKind(), testkit.Scheme())
	cases := map[string]struct {
		reason string
		k      Kind
		a, b   client.Object
		want   bool
	}{
		"Same":     {reason: "Equal statuses are the same.", k: buckets, a: bucket(), b: bucket(), want: true},
		"Other":    {reason: "Another ID is another status.", k: buckets, a: bucket(), b: bucket(func(b *v1alpha1.Bucket) { b.Status.AtProvider.ID = "x" })},
		"Metadata": {reason: "Metadata is no status.", k: buckets, a: bucket(), b: bucket(func(b *v1alpha1.Bucket) { b.Labels = map[string]string{"a": "b"} }), want: true},
		"NoStatus": {reason: "Without a status there is nothing to compare.", k: NewKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"), coreScheme()), a: &corev1.ConfigMap{}, b: &corev1.ConfigMap{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, "statusEqual(...)", tc.want, tc.k.statusEqual(tc.a, tc.b))
		})
	}
}

func coreScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.ConfigMap{})
	return s
}

// An object of a kind without status is not known to differ in annotations only.
func TestOnlyAnnotationsDiffer_NoStatus(t *testing.T) {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "uid", ResourceVersion: "7"}}
	s := sessionOf(o)
	s.kind = NewKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"), coreScheme())
	if !s.Tracks(o) || s.OnlyAnnotationsDiffer(o) {
		t.Errorf("Tracks(...), OnlyAnnotationsDiffer(...): want true, false; got %t, %t", s.Tracks(o), s.OnlyAnnotationsDiffer(o))
	}
}

// The zero Options read live through the client, and have a clock and a timer.
func TestNewReconciler_Defaults(t *testing.T) {
	r := NewReconciler(testkit.NewAPI(bucket()).Client(), NewKind(testkit.BucketKind(), testkit.Scheme()), func(client.Client) reconcile.Reconciler { return nil }, Options{})
	if r.options.Live == nil || r.options.Now == nil || r.options.Wait == nil {
		t.Fatalf("NewReconciler(...): want defaults, got %+v", r.options)
	}
	if d := time.Since(r.options.Now()); d < 0 || d > time.Minute {
		t.Errorf("Now(): want the time, got one %s ago", d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.options.Wait(ctx, time.Hour); err == nil {
		t.Error("Wait(...) of a cancelled context: want an error")
	}
}

// Only the subresource for status is changed.
func TestSubResource(t *testing.T) {
	c := NewClient(testkit.NewAPI(bucket()).Client())
	if _, ok := c.SubResource("status").(*statusClient); !ok {
		t.Error(`SubResource("status"): want a status writer`)
	}
	if _, ok := c.SubResource("scale").(*statusClient); ok {
		t.Error(`SubResource("scale"): want the client's own`)
	}
}

// A textual object has times in its conditions that may be any text.
type textual struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

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
}

func (o *textual) DeepCopyObject() runtime.Object { c := *o; return &c }

// A condition whose time is none is one of the conditions.
func TestConditionsWithTimesOfAnotherForm(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Textual"}
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(gvk, &textual{})
	other := textualCondition{Type: "Other", Status: "True", LastTransitionTime: "yesterday"}
	o := &textual{Status: textualStatus{Conditions: []textualCondition{other}}}
	c, ok := NewKind(gvk, s).Conditioned(o)
	if !ok {
		t.Fatal("Conditioned(...): want conditions")
	}
	for range 2 {
		ready := xpv2.Available()
		ready.LastTransitionTime = metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		c.SetConditions(ready)
	}
	want := []textualCondition{other, {Type: "Ready", Status: "True", Reason: "Available", LastTransitionTime: "2026-01-02T03:04:05Z"}}
	wants(t, "A condition is added once.", "SetConditions(...)", want, o.Status.Conditions)
}
