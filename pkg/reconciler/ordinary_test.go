package reconciler_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
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
	inStatus struct {
		Phase      string             `json:"phase,omitempty"`
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	}
	in[C any] struct {
		Conditions C `json:"conditions,omitempty"`
	}
	part struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	}
	withoutConditions struct {
		Phase string `json:"phase,omitempty"`
	}
)

func newOrdinaryCluster(o client.Object) *cluster {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(ordinaries, o)
	return serve(s, []schema.GroupVersionKind{ordinaries}, o)
}

func newOrdinaryUnstructured() *unstructured.Unstructured { return newObject(ordinaries, "", "o") }

func deletionTime() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func deletedMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              "o",
		Generation:        2,
		Finalizers:        []string{"example.org/f"},
		DeletionTimestamp: &metav1.Time{Time: deletionTime()},
	}
}

func newOrdinary[S any](status S) client.Object {
	return &ordinary[S]{ObjectMeta: deletedMeta(), Status: status}
}

// An object of an ordinary type has all that a Crossplane object has.
func TestOrdinaryTypes(t *testing.T) {
	before := metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Rfc3339Copy()
	reported, late := metav1.Time{
		Time: deletionTime().Add(time.Minute),
	}, "The deadline for the deletion was 2026-01-02T04:04:05Z. Deletion was requested."
	other := metav1.Condition{Type: "Other", Status: "True", Reason: "AsExpected", LastTransitionTime: before}
	ready := metav1.Condition{
		Type:               "Ready",
		Status:             "True",
		Reason:             "Running",
		Message:            "It runs.",
		LastTransitionTime: before,
		ObservedGeneration: 1,
	}

	// In metav1.Condition the time changes with the status only.
	want := func(before ...metav1.Condition) []metav1.Condition {
		return append(before,
			metav1.Condition{
				Type:               "Ready",
				Status:             "False",
				Reason:             "Deleting",
				Message:            late,
				LastTransitionTime: reported,
				ObservedGeneration: 2,
			},
			metav1.Condition{
				Type:               "Deleting",
				Status:             "True",
				Reason:             "DeadlineExceeded",
				Message:            late,
				LastTransitionTime: reported,
				ObservedGeneration: 2,
			})
	}
	withoutGeneration := want()
	withoutGeneration[0].ObservedGeneration, withoutGeneration[1].ObservedGeneration = 0, 0
	cases := map[string]struct {
		reason string
		object client.Object
		want   []metav1.Condition
	}{
		"Metav1": {
			reason: "Other conditions are kept.",
			object: newOrdinary(inStatus{Phase: "fine", Conditions: []metav1.Condition{other, ready}}),
			want:   want(other),
		},
		"None": {
			reason: "An object whose type has conditions should be reported, even if it has none yet.",
			object: newOrdinary(inStatus{}),
			want:   want(),
		},
		"NilStatus": {reason: "It may be nil.", object: newOrdinary[*inStatus](nil), want: want()},
		"OtherConditions": {
			reason: "They may be of another type that can hold them.",
			object: newOrdinary(in[[]corev1.NodeCondition]{}),
			want:   withoutGeneration,
		},
		"Crossplanes": {
			reason: "They may be Crossplane's without its methods.",
			object: newOrdinary(in[[]xpv2.Condition]{}),
			want:   want(),
		},
	}
	forms := map[string]func(o client.Object) client.Object{
		"Typed": func(o client.Object) client.Object {
			e, _ := o.DeepCopyObject().(client.Object)
			return e
		},
		"Unstructured": func(client.Object) client.Object { return newOrdinaryUnstructured() },
	}
	for name, tc := range cases {
		for fname, empty := range forms {
			t.Run(name+"/"+fname, func(t *testing.T) {
				c := newOrdinaryCluster(tc.object)
				m, events, told := reconciler.NewMetrics(), &testkit.Said{}, 0
				now := reported.Time
				build := newReadingReconciler(func() client.Object { return empty(tc.object) }, nil)
				r := reconciler.New(c, ordinaries, build, reconciler.WithMetrics(m), reconciler.WithRecorder(events),
					reconciler.WithClock(func() time.Time { return now }),
					reconciler.WithDeletionDeadline(time.Hour, func(context.Context, client.Object) { told++ }))
				mustReconcileTimes(t, 3, r, tc.object)
				now = now.Add(2 * time.Hour)
				mustReconcileTimes(t, 3, r, tc.object)
				var got []metav1.Condition
				for _, c := range c.conditionsWithTimes(t, newOrdinaryUnstructured()) {
					got = append(got, metav1.Condition{
						Type:               string(c.Type),
						Status:             metav1.ConditionStatus(c.Status),
						Reason:             string(c.Reason),
						Message:            c.Message,
						LastTransitionTime: c.LastTransitionTime,
						ObservedGeneration: c.ObservedGeneration,
					})
				}
				expectEqual(t, tc.reason, "", tc.want, got)
				expectEqual(t, tc.reason, "writes of status, calls, events, blocked", []int{2, 1, 1, 1}, []int{
					c.count("status"), told, len(events.Events()), blockedMetric(t, m)["DeadlineExceeded"],
				})
			})
		}
	}
}

// An inner reconciler that says Deleting each time changes nothing on the API server.
func TestOrdinaryTypesKeepTransitionTimes(t *testing.T) {
	o := newOrdinary(inStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Running"}}})
	c, n := newOrdinaryCluster(o), 0
	reported := deletionTime().Add(time.Minute)
	r := reconciler.New(c, ordinaries, newReadingReconciler(func() *ordinary[inStatus] {
		return &ordinary[inStatus]{}
	}, func(ctx context.Context, c client.Client, is *ordinary[inStatus]) error {
		n++
		is.Status.Conditions = []metav1.Condition{{
			Type:               "Ready",
			Status:             "False",
			Reason:             "Deleting",
			LastTransitionTime: metav1.Unix(int64(n)*3600, 0),
		}}
		return c.Status().Update(ctx, is)
	}), reconciler.WithClock(func() time.Time { return reported }))
	mustReconcileTimes(t, 3, r, o)
	for _, got := range c.conditionsWithTimes(t, newOrdinaryUnstructured()) {
		expectEqual(t, string(got.Type), "transition", reported, got.LastTransitionTime.Time)
	}
}

// A typed object has no kind, which a lister may need.
func TestOrdinaryTypes_KindForListers(t *testing.T) {
	o, got := newOrdinary(inStatus{}), schema.GroupVersionKind{}
	lister := func(_ context.Context, _ client.Reader, o client.Object) ([]reconciler.Dependent, error) {
		got = o.GetObjectKind().GroupVersionKind()
		return nil, nil
	}
	build := newReadingReconciler(func() *ordinary[inStatus] { return &ordinary[inStatus]{} }, nil)
	mustReconcile(t, reconciler.New(
		newOrdinaryCluster(o), ordinaries, build, reconciler.WithDependents(reconciler.DependentListerFn(lister)),
	), o)
	expectEqual(t, "A lister should get the object with its kind.", "kind", ordinaries, got)
}
