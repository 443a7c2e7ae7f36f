package seam

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// everything has a field of each kind that a status may have.
type everything struct {
	Bool     bool
	Int      int32
	Uint     uint8
	Float    float64
	String   string
	Pointer  *string
	Nested   *everything
	Slice    []everything
	Array    [2]string
	Strings  map[string]string
	Numbers  map[string]int64
	Lists    map[string][]string
	Any      any
	Status   v1alpha1.Status
	Quantity resource.Quantity
	Time     *metav1.Time
}

func TestSame(t *testing.T) {
	s1, s2 := "a", "a"
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	later := metav1.NewTime(now.Add(time.Second))
	here := metav1.NewTime(now.In(time.FixedZone("here", 3600)))

	cases := map[string]struct {
		reason string
		a, b   any
		want   bool
	}{
		"Zero":             {reason: "Nothing is nothing.", a: everything{}, b: everything{}, want: true},
		"Bool":             {reason: "Booleans differ.", a: everything{Bool: true}, b: everything{}},
		"Int":              {reason: "Integers differ.", a: everything{Int: 1}, b: everything{Int: 2}},
		"Uint":             {reason: "Unsigned integers differ.", a: everything{Uint: 1}, b: everything{Uint: 2}},
		"Float":            {reason: "Floats differ.", a: everything{Float: 1}, b: everything{Float: 2}},
		"String":           {reason: "Strings differ.", a: everything{String: "a"}, b: everything{String: "b"}},
		"Pointer":          {reason: "What pointers point to counts.", a: everything{Pointer: &s1}, b: everything{Pointer: &s2}, want: true},
		"NilPointer":       {reason: "Nil is not a pointer to something.", a: everything{Pointer: &s1}, b: everything{}},
		"Nested":           {reason: "Differences are found below pointers.", a: everything{Nested: &everything{Int: 1}}, b: everything{Nested: &everything{Int: 2}}},
		"Slice":            {reason: "Differences are found in lists.", a: everything{Slice: []everything{{Int: 1}}}, b: everything{Slice: []everything{{Int: 2}}}},
		"SliceLength":      {reason: "Lists of different length differ.", a: everything{Slice: []everything{{}, {}}}, b: everything{Slice: []everything{{}}}},
		"EmptySlice":       {reason: "An empty list is an absent one.", a: everything{Slice: []everything{}}, b: everything{}, want: true},
		"Array":            {reason: "Arrays differ.", a: everything{Array: [2]string{"a"}}, b: everything{}},
		"StringMap":        {reason: "Maps of strings differ.", a: everything{Strings: map[string]string{"a": "1"}}, b: everything{Strings: map[string]string{"a": "2"}}},
		"StringMapKey":     {reason: "Keys differ.", a: everything{Strings: map[string]string{"a": ""}}, b: everything{Strings: map[string]string{"b": ""}}},
		"EmptyMap":         {reason: "An empty map is an absent one.", a: everything{Strings: map[string]string{}}, b: everything{}, want: true},
		"NumberMap":        {reason: "Other maps differ.", a: everything{Numbers: map[string]int64{"a": 1}}, b: everything{Numbers: map[string]int64{"a": 2}}},
		"StringMapLonger":  {reason: "A map that has all of another one's entries may have more.", a: everything{Strings: map[string]string{"a": "1"}}, b: everything{Strings: map[string]string{"a": "1", "b": "2"}}},
		"NumberMapLonger":  {reason: "So may another one.", a: everything{Numbers: map[string]int64{"a": 1}}, b: everything{Numbers: map[string]int64{"a": 1, "b": 2}}},
		"NumberMapKey":     {reason: "An absent key is not a zero value.", a: everything{Numbers: map[string]int64{"a": 0}}, b: everything{Numbers: map[string]int64{"b": 0}}},
		"ListMap":          {reason: "Maps of lists are the same if the lists are.", a: everything{Lists: map[string][]string{"a": {"1"}}}, b: everything{Lists: map[string][]string{"a": {"1"}}}, want: true},
		"Any":              {reason: "What interfaces hold counts.", a: everything{Any: map[string]any{"a": 1.0}}, b: everything{Any: map[string]any{"a": 1.0}}, want: true},
		"AnyType":          {reason: "Types count.", a: everything{Any: int64(1)}, b: everything{Any: float64(1)}},
		"AnyNil":           {reason: "Nil is not something.", a: everything{Any: 1}, b: everything{}},
		"Time":             {reason: "The same time is the same.", a: everything{Time: &now}, b: everything{Time: &metav1.Time{Time: now.Time}}, want: true},
		"LaterTime":        {reason: "Times differ.", a: everything{Time: &now}, b: everything{Time: &later}},
		"TimeElsewhere":    {reason: "A time in another zone is not known to be the same.", a: everything{Time: &now}, b: everything{Time: &here}},
		"Func":             {reason: "Functions can't be compared.", a: everything{Any: func() {}}, b: everything{Any: func() {}}},
		"QuantitiesDiffer": {reason: "Quantities differ.", a: everything{Quantity: resource.MustParse("1Gi")}, b: everything{Quantity: resource.MustParse("2Gi")}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, b := reflect.ValueOf(tc.a), reflect.ValueOf(tc.b)
			wants(t, tc.reason, "same(...), in both orders", []bool{tc.want, tc.want}, []bool{same(a, b), same(b, a)})
		})
	}
}
