package reconciler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/reconciler"
)

var ordinaries = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Ordinary"}

// An ordinary object has a status, and no methods for its conditions.
type ordinary[S any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Status S `json:"status,omitempty"`
}

func (o *ordinary[S]) DeepCopyObject() runtime.Object {
	out := &ordinary[S]{}

	data, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(data, out)
	}

	if err != nil {
		panic(err)
	}

	return out
}

type (
	conditionList []metav1.Condition

	inStatus struct {
		Phase      string             `json:"phase,omitempty"`
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	}
	inNamedList struct {
		Conditions conditionList `json:"conditions"`
	}
	inPointers struct {
		Conditions []*metav1.Condition `json:"conditions,omitempty"`
	}
	inlined struct {
		inStatus `json:",inline"`
	}
	Inlined struct {
		*InStatus `json:",inline"`
	}
	InStatus      inStatus
	inOtherStatus struct {
		Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
	}
	inCrossplanes struct {
		Conditions []xpv2.Condition `json:"conditions,omitempty"`
	}
	inText struct {
		Conditions []string `json:"conditions,omitempty"`
	}
	inMap struct {
		Conditions map[string]metav1.Condition `json:"conditions,omitempty"`
	}
	inPart struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions,omitempty"`
	}
	withoutConditions struct {
		Phase string `json:"phase,omitempty"`
	}
)

// An ordinaryServer has one object of a kind, whose status it validates as the schema
// of metav1.Condition says.
type ordinaryServer struct {
	client.WithWatch

	patches int
}

func newOrdinaryServer(t *testing.T, o client.Object) *ordinaryServer {
	t.Helper()

	s := runtime.NewScheme()
	s.AddKnownTypeWithName(ordinaries, o)
	metav1.AddToGroupVersion(s, ordinaries.GroupVersion())

	out := &ordinaryServer{}
	out.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(o).WithObjects(o).Build(), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			out.patches++

			data, err := p.Data(o)
			if err != nil {
				return err
			}

			if err := validate(data); err != nil {
				t.Errorf("%v: %s", err, data)
				return err
			}

			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})

	return out
}

// validate the conditions in a patch.
func validate(patch []byte) error {
	in := struct {
		Status struct {
			Conditions []map[string]any `json:"conditions"`
		} `json:"status"`
	}{}

	if err := json.Unmarshal(patch, &in); err != nil {
		return err
	}

	for _, c := range in.Status.Conditions {
		for _, k := range []string{"type", "status", "reason", "message", "lastTransitionTime"} {
			v, ok := c[k].(string)
			if !ok || v == "" && k != "message" {
				return fmt.Errorf("status.conditions.%s: required", k)
			}
		}
	}

	return nil
}

// what the server says of its object.
func (s *ordinaryServer) conditions(t *testing.T) []metav1.Condition {
	t.Helper()

	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(ordinaries)

	if err := s.Get(context.Background(), client.ObjectKey{Name: "o"}, u); err != nil {
		t.Fatal(err)
	}

	out := inStatus{}

	data, err := json.Marshal(u.Object["status"])
	if err == nil {
		err = json.Unmarshal(data, &out)
	}

	if err != nil {
		t.Fatal(err)
	}

	return out.Conditions
}

func anOrdinary[S any](status S) client.Object {
	requested := metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	return &ordinary[S]{
		ObjectMeta: metav1.ObjectMeta{Name: "o", UID: "uid-of-o", Generation: 7, Finalizers: []string{"example.org/f"}, DeletionTimestamp: &requested},
		Status:     status,
	}
}

// An object of an ordinary type, with or without conditions, has all that a Crossplane
// object has.
func TestOrdinaryTypes(t *testing.T) {
	before := metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Rfc3339Copy()
	requested, late := metav1.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC), "The deadline for the deletion was 2026-01-02T04:04:05Z. Deletion was requested."
	other := metav1.Condition{Type: "Other", Status: "True", Reason: "AsExpected", LastTransitionTime: before}
	ready := metav1.Condition{Type: "Ready", Status: "True", Reason: "Running", Message: "It runs.", LastTransitionTime: before, ObservedGeneration: 6}

	// As Kubernetes has it, the time is that of the status.
	want := func(before ...metav1.Condition) []metav1.Condition {
		return append(before,
			metav1.Condition{Type: "Ready", Status: "False", Reason: "Deleting", Message: late, LastTransitionTime: requested, ObservedGeneration: 7},
			metav1.Condition{Type: "Deleting", Status: "True", Reason: "DeadlineExceeded", Message: late, LastTransitionTime: requested, ObservedGeneration: 7})
	}
	withoutGeneration := want()
	withoutGeneration[0].ObservedGeneration, withoutGeneration[1].ObservedGeneration = 0, 0

	cases := map[string]struct {
		reason string
		object client.Object
		want   []metav1.Condition
	}{
		"Metav1":          {reason: "Other conditions are kept.", object: anOrdinary(inStatus{Phase: "fine", Conditions: []metav1.Condition{other, ready}}), want: want(other)},
		"None":            {reason: "A type may have conditions of which an object has none yet.", object: anOrdinary(inStatus{}), want: want()},
		"NamedList":       {reason: "The list may be a type of its own.", object: anOrdinary(inNamedList{Conditions: conditionList{other, ready}}), want: want(other)},
		"PointerToStatus": {reason: "The status may be a pointer.", object: anOrdinary(&inStatus{Conditions: []metav1.Condition{other}}), want: want(other)},
		"NilStatus":       {reason: "It may be nil.", object: anOrdinary[*inStatus](nil), want: want()},
		"Pointers":        {reason: "So may the conditions be.", object: anOrdinary(inPointers{Conditions: []*metav1.Condition{&other, &ready}}), want: want(other)},
		"Inlined":         {reason: "They may be in an inlined struct.", object: anOrdinary(inlined{inStatus{Conditions: []metav1.Condition{other}}}), want: want(other)},
		"InlinedPointer":  {reason: "That may be a pointer, too.", object: anOrdinary(Inlined{}), want: want()},
		"OtherConditions": {reason: "They may be of another type that can hold them.", object: anOrdinary(inOtherStatus{}), want: withoutGeneration},
		"Crossplanes":     {reason: "They may be Crossplane's without its methods.", object: anOrdinary(inCrossplanes{}), want: want()},
	}

	forms := map[string]func(o client.Object) client.Object{
		"Typed": func(o client.Object) client.Object {
			e, _ := o.DeepCopyObject().(client.Object)
			return e
		},
		"Unstructured": func(client.Object) client.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(ordinaries)

			return u
		},
	}

	for name, tc := range cases {
		for fname, empty := range forms {
			t.Run(name+"/"+fname, func(t *testing.T) {
				c := newOrdinaryServer(t, tc.object)
				m, events, told := reconciler.NewMetrics(), &recorder{}, 0
				now := requested.Time

				build := func(c client.Client) reconcile.Reconciler {
					return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
						return reconcile.Result{}, c.Get(ctx, req.NamespacedName, empty(tc.object))
					})
				}
				r := reconciler.New(c, ordinaries, build, reconciler.WithMetrics(m), reconciler.WithRecorder(events),
					reconciler.WithClock(func() time.Time { return now }),
					reconciler.WithDeletionDeadline(time.Hour, func(context.Context, client.Object) { told++ }))

				for range 3 {
					pass(t, r, tc.object)
				}

				now = now.Add(2 * time.Hour)

				for range 3 {
					pass(t, r, tc.object)
				}

				if diff := cmp.Diff(tc.want, c.conditions(t)); diff != "" {
					t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
				}

				if c.patches != 2 {
					t.Errorf("\n%s\nwrites of status: want 2, got %d", tc.reason, c.patches)
				}

				if diff := cmp.Diff([]int{1, 1, 1}, []int{told, len(events.events), blocked(t, m)["DeadlineExceeded"]}); diff != "" {
					t.Errorf("\n%s\ncalls, events, blocked: -want, +got:\n%s", tc.reason, diff)
				}
			})
		}
	}
}

// Conditions that can't hold what a report says are a mistake that is found at once.
func TestTypesWithoutFittingConditions(t *testing.T) {
	cases := map[string]struct {
		reason string
		object client.Object
		want   string
	}{
		"Text":    {reason: "Text holds no condition.", object: anOrdinary(inText{}), want: "[]string, which can't hold a condition"},
		"Map":     {reason: "Neither does a map.", object: anOrdinary(inMap{}), want: "map[string]v1.Condition, which can't hold a condition"},
		"Part":    {reason: "Neither does what has no room for a message.", object: anOrdinary(inPart{}), want: "which can't hold a condition"},
		"Without": {reason: "Without conditions an object is left alone.", object: anOrdinary(withoutConditions{})},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newOrdinaryServer(t, tc.object)

			defer func() {
				err, _ := recover().(error)
				if tc.want == "" && err == nil {
					return
				}

				if err == nil || !strings.Contains(err.Error(), tc.want) || tc.want == "" {
					t.Errorf("\n%s\nwant %q, got %v", tc.reason, tc.want, err)
				}
			}()

			reconciler.New(c, ordinaries, func(client.Client) reconcile.Reconciler {
				return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					return reconcile.Result{}, errors.New("not called")
				})
			})
		})
	}
}

// An inner reconciler that says Deleting itself each time, and gives it the time of
// that, changes nothing on the API server.
func TestOrdinaryTypesKeepTransitionTimes(t *testing.T) {
	o := anOrdinary(inStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Running"}}})
	says := func(n int) metav1.Condition {
		return metav1.Condition{Type: "Ready", Status: "False", Reason: "Deleting", LastTransitionTime: metav1.Unix(int64(n)*3600, 0)}
	}

	forms := map[string]func(n int) client.Object{
		"Typed": func(n int) client.Object {
			return &ordinary[inStatus]{Status: inStatus{Conditions: []metav1.Condition{says(n)}}}
		},
		"Unstructured": func(n int) client.Object {
			c := says(n)
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(ordinaries)
			u.Object["status"] = map[string]any{"conditions": []any{map[string]any{
				"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": "", "lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339),
			}}}

			return u
		},
	}

	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			c, n := newOrdinaryServer(t, o), 0
			requested := metav1.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC)

			r := reconciler.New(c, ordinaries, func(c client.Client) reconcile.Reconciler {
				return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					n++

					is, says := form(n), form(n)
					if err := c.Get(ctx, req.NamespacedName, is); err != nil {
						return reconcile.Result{}, err
					}

					says.SetName(is.GetName())
					says.SetUID(is.GetUID())
					says.SetResourceVersion(is.GetResourceVersion())
					says.SetGeneration(is.GetGeneration())
					says.SetFinalizers(is.GetFinalizers())
					says.SetDeletionTimestamp(is.GetDeletionTimestamp())

					return reconcile.Result{}, c.Status().Update(ctx, says)
				})
			}, reconciler.WithClock(func() time.Time { return requested.Time }))

			for range 3 {
				pass(t, r, o)
			}

			for _, got := range c.conditions(t) {
				if !got.LastTransitionTime.Time.Equal(requested.Time) {
					t.Errorf("%s: want the transition at %s, got %s", got.Type, requested, got.LastTransitionTime)
				}
			}
		})
	}
}
