package seam

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/store"
)

func TestCheckText(t *testing.T) {
	cases := map[string]struct {
		reason, text, want string
	}{
		"Good":    {reason: "Any letters will do.", text: "projects/é/databases/1"},
		"Longest": {reason: "As many as there may be.", text: strings.Repeat("a", 32)},
		"TooLong": {
			reason: "And not one more.",
			text:   strings.Repeat("a", 33),
			want:   "it has 33 bytes, and 32 is the most",
		},
		"Empty":   {reason: "Nothing is no text.", want: "it is empty"},
		"Bytes":   {reason: "The API server takes text.", text: "a\xff", want: "it is not UTF-8"},
		"Control": {reason: "A control character can't be typed.", text: "a\tb", want: "it has control characters"},
		"Control1": {
			reason: "Nor can one of the second range of control characters.",
			text:   "a\u0085b",
			want:   "it has control characters",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := CheckText(tc.text, 32); err != nil {
				got = err.Error()
			}
			wants(t, tc.reason, "", tc.want, got)
		})
	}
}

func TestPermanent(t *testing.T) {
	gr := schema.GroupResource{Resource: "buckets"}
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"NoStatus": {reason: "The CRD must be changed first.", err: ErrNoStatus, want: true},
		"NotFound": {
			reason: "An object that is gone does not come back.",
			err:    kerrors.NewNotFound(gr, "b"),
			want:   true,
		},
		"Invalid": {
			reason: "The same content is refused again.",
			err:    kerrors.NewInvalid(schema.GroupKind{}, "b", nil),
			want:   true,
		},
		"Forbidden": {
			reason: "An administrator must grant the permission first.",
			err:    kerrors.NewForbidden(gr, "b", nil),
			want:   true,
		},
		"BadRequest": {reason: "The same request is refused again.", err: kerrors.NewBadRequest("no"), want: true},
		"NotSupported": {
			reason: "The API server does not serve this verb.",
			err:    kerrors.NewMethodNotSupported(gr, "patch"),
			want:   true,
		},
		"TooLarge": {
			reason: "The object does not become smaller.",
			err:    kerrors.NewRequestEntityTooLargeError("no"),
			want:   true,
		},
		"MediaType": {
			reason: "The API server does not read this encoding.",
			err:    kerrors.NewGenericServerResponse(415, "patch", gr, "b", "", 0, true),
			want:   true,
		},
		"NotAcceptable": {
			reason: "The API server does not write this encoding.",
			err:    kerrors.NewGenericServerResponse(406, "patch", gr, "b", "", 0, true),
			want:   true,
		},
		"Wrapped": {
			reason: "A wrapped error should count.",
			err:    errors.Wrap(kerrors.NewForbidden(gr, "b", nil), "cannot patch"),
			want:   true,
		},
		"Conflict": {reason: "The next read may be newer.", err: kerrors.NewConflict(gr, "b", nil)},
		"TooMany":  {reason: "The API server may have time later.", err: kerrors.NewTooManyRequests("later", 1)},
		"NoAnswer": {reason: "The network may be back later.", err: errors.New("connection refused")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, "Permanent(...)", tc.want, Permanent(tc.err))
		})
	}
}

// A read is fresh only if it is known to be. Versions that can't be compared are
// known to be nothing.
func TestFresh(t *testing.T) {
	cases := map[string]struct {
		reason string
		entry  history
		read   string
		want   bool
	}{
		"NothingWritten": {reason: "Nothing was written.", read: "7", want: true},
		"Same": {
			reason: "The read should have the last write.",
			entry:  history{version: "7"},
			read:   "7",
			want:   true,
		},
		"Newer":           {reason: "It is newer.", entry: history{version: "9"}, read: "10", want: true},
		"Older":           {reason: "It is older.", entry: history{version: "10"}, read: "9"},
		"UnparseableRead": {reason: "It can't be compared.", entry: history{version: "9"}, read: "z10"},
		"UnparseableSame": {
			reason: "An equal version should need no comparison.",
			entry:  history{version: "x9"},
			read:   "x9",
			want:   true,
		},
		"Doubtful": {
			reason: "The read may lack the last write.",
			entry:  history{version: "5", doubt: "7"},
			read:   "7",
		},
		"DoubtfulAlone": {reason: "The read may lack the first write.", entry: history{doubt: "7"}, read: "7"},
		"PastDoubt": {
			reason: "It has it, if it was done.",
			entry:  history{version: "5", doubt: "7"},
			read:   "8",
			want:   true,
		},
		"PastDoubtButTooOld": {reason: "Both must hold.", entry: history{version: "9", doubt: "7"}, read: "8"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, "fresh(...)", tc.want, tc.entry.fresh(tc.read))
		})
	}
}

func TestWrites(t *testing.T) {
	object := func(uid types.UID, version string) *v1alpha1.Bucket {
		return bucket(func(b *v1alpha1.Bucket) { b.UID, b.ResourceVersion = uid, version })
	}
	m := &histories{store: &store.Store{}}
	is := func(reason string, uid types.UID, version string) {
		t.Helper()
		e := m.get(object(uid, ""))
		wants(t, reason, "version, doubt", []any{version, ""}, []any{e.version, e.doubt})
	}
	m.doubted(object("1", "4"))
	m.noteWrite(object("1", "5"))
	is("An answer ends doubt.", "1", "5")
	m.noteWrite(object("1", "3"))
	is("The newest write counts.", "1", "5")
}

func TestAllows(t *testing.T) {
	wants(t, "Without policies all is allowed.", "Allows(...)", true, Allows(bucket(), xpv2.ManagementActionCreate))
}

func TestRequeue(t *testing.T) {
	poll := reconcile.Result{RequeueAfter: time.Minute}
	backoff := reconcile.Result{Requeue: true}
	after := func(d time.Duration) reconcile.Result { return reconcile.Result{RequeueAfter: d} }
	cases := map[string]struct {
		reason string
		asked  []Requeue
		result reconcile.Result
		want   reconcile.Result
	}{
		"Nothing": {reason: "Without a request the result should stay.", result: poll, want: poll},
		"Backoff": {
			reason: "Backoff replaces a poll.",
			asked:  []Requeue{WithBackoff()},
			result: poll,
			want:   backoff,
		},
		"BackoffFirst": {
			reason: "Backoff comes before delays.",
			asked:  []Requeue{Within(time.Second), WithBackoff(), InsteadOfBackoff(time.Second)},
			result: poll,
			want:   backoff,
		},
		"WithinPoll": {
			reason: "A poll is made earlier.",
			asked:  []Requeue{Within(time.Second)},
			result: poll,
			want:   after(time.Second),
		},
		"WithinLater": {
			reason: "A poll that is earlier stays.",
			asked:  []Requeue{Within(time.Hour)},
			result: poll,
			want:   poll,
		},
		"WithinNone": {
			reason: "What would not run again does.",
			asked:  []Requeue{Within(time.Hour)},
			want:   after(time.Hour),
		},
		"WithinBackoff": {
			reason: "A backoff may be shorter.",
			asked:  []Requeue{Within(time.Second)},
			result: backoff,
			want:   backoff,
		},
		"WithinOverdue": {
			reason: "An overdue request should run at once.",
			asked:  []Requeue{Within(-time.Second)},
			result: poll,
			want:   after(1),
		},
		"ShorterWithin": {
			reason: "The shorter of two delays counts.",
			asked:  []Requeue{Within(time.Second), Within(2 * time.Second)},
			result: poll,
			want:   after(time.Second),
		},
		"ShorterWithinLast": {
			reason: "The shorter delay should count, in any order.",
			asked:  []Requeue{Within(2 * time.Second), Within(time.Second)},
			result: poll,
			want:   after(time.Second),
		},
		"Instead": {
			reason: "A backoff is replaced.",
			asked:  []Requeue{InsteadOfBackoff(time.Hour)},
			result: backoff,
			want:   after(time.Hour),
		},
		"InsteadOfPoll": {
			reason: "A poll is not.",
			asked:  []Requeue{InsteadOfBackoff(time.Second)},
			result: poll,
			want:   poll,
		},
		"InsteadOfNothing": {reason: "Nor is nothing.", asked: []Requeue{InsteadOfBackoff(time.Second)}},
		"ShorterInstead": {
			reason: "The shorter of two delays counts.",
			asked:  []Requeue{InsteadOfBackoff(time.Hour), InsteadOfBackoff(time.Minute)},
			result: backoff,
			want:   after(time.Minute),
		},
		"WithinAndInstead": {
			reason: "Each is for its own result.",
			asked:  []Requeue{Within(time.Second), InsteadOfBackoff(time.Minute)},
			result: backoff,
			want:   after(time.Minute),
		},
		"DeadlineAndInstead": {
			reason: "A deadline should bound the delay that replaces a backoff, which is known.",
			asked:  []Requeue{Deadline(time.Second), InsteadOfBackoff(time.Minute)},
			result: backoff,
			want:   after(time.Second),
		},
		"DeadlineAfterInstead": {
			reason: "A deadline should lengthen no delay.",
			asked:  []Requeue{Deadline(time.Hour), InsteadOfBackoff(time.Minute), Deadline(2 * time.Hour)},
			result: backoff,
			want:   after(time.Minute),
		},
		"DeadlineBackoff": {
			reason: "A backoff may be shorter.",
			asked:  []Requeue{Deadline(time.Second)},
			result: backoff,
			want:   backoff,
		},
		"DeadlineAndWithin": {
			reason: "The shorter of two delays should count.",
			asked:  []Requeue{Deadline(time.Second), Within(time.Minute)},
			result: poll,
			want:   after(time.Second),
		},
		"WithinOfBoth": {
			reason: "No delay is not shorter than one.",
			asked:  []Requeue{Within(time.Second), InsteadOfBackoff(time.Minute)},
			result: poll,
			want:   after(time.Second),
		},
		"DelayBeforeBackoff": {
			reason: "A result with both counts as a delay.",
			asked:  []Requeue{Within(time.Second)},
			result: reconcile.Result{Requeue: true, RequeueAfter: time.Minute},
			want:   after(time.Second),
		},
		"PriorityIsKept": {
			reason: "The priority of the request is the inner reconciler's.",
			asked:  []Requeue{WithBackoff()},
			result: reconcile.Result{Priority: new(int)},
			want:   reconcile.Result{Requeue: true, Priority: new(int)},
		},
		"PriorityOfADelay": {
			reason: "Also with a delay.",
			asked:  []Requeue{Within(1)},
			result: reconcile.Result{Priority: new(int)},
			want:   reconcile.Result{RequeueAfter: 1, Priority: new(int)},
		},
		"PriorityOfInstead": {
			reason: "Also in place of a backoff.",
			asked:  []Requeue{InsteadOfBackoff(1)},
			result: reconcile.Result{Requeue: true, Priority: new(int)},
			want:   reconcile.Result{RequeueAfter: 1, Priority: new(int)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &Session{}
			for _, r := range tc.asked {
				s.Requeue(r)
			}
			wants(t, tc.reason, "decide(...)", tc.want, s.requeue.decide(tc.result))
		})
	}
}

func TestSlot(t *testing.T) {
	var a, b Slot[int]
	s, other := &Session{}, &Session{}
	if a.Find(s) != nil || a.Find(nil) != nil {
		t.Error("there is a value before In was called")
	}
	*a.In(s), *b.In(s), *a.In(nil) = 1, 2, 3
	wants(t, "", "values", []int{1, 2, 0}, []int{*a.In(s), *b.Find(s), *a.In(other)})
}

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
		"Zero":   {reason: "Nothing is nothing.", a: everything{}, b: everything{}, want: true},
		"Bool":   {reason: "Booleans differ.", a: everything{Bool: true}, b: everything{}},
		"Int":    {reason: "Integers differ.", a: everything{Int: 1}, b: everything{Int: 2}},
		"Uint":   {reason: "Unsigned integers differ.", a: everything{Uint: 1}, b: everything{Uint: 2}},
		"Float":  {reason: "Floats differ.", a: everything{Float: 1}, b: everything{Float: 2}},
		"String": {reason: "Strings differ.", a: everything{String: "a"}, b: everything{String: "b"}},
		"Pointer": {
			reason: "What pointers point to counts.",
			a:      everything{Pointer: &s1},
			b:      everything{Pointer: &s2},
			want:   true,
		},
		"NilPointer": {
			reason: "Nil is not a pointer to something.",
			a:      everything{Pointer: &s1},
			b:      everything{},
		},
		"Nested": {
			reason: "Differences are found below pointers.",
			a:      everything{Nested: &everything{Int: 1}},
			b:      everything{Nested: &everything{Int: 2}},
		},
		"Slice": {
			reason: "Differences are found in lists.",
			a:      everything{Slice: []everything{{Int: 1}}},
			b:      everything{Slice: []everything{{Int: 2}}},
		},
		"SliceLength": {
			reason: "Lists of different length differ.",
			a:      everything{Slice: []everything{{}, {}}},
			b:      everything{Slice: []everything{{}}},
		},
		"EmptySlice": {
			reason: "An empty list is an absent one.",
			a:      everything{Slice: []everything{}},
			b:      everything{},
			want:   true,
		},
		"Array": {reason: "Arrays differ.", a: everything{Array: [2]string{"a"}}, b: everything{}},
		"StringMap": {
			reason: "Maps of strings differ.",
			a:      everything{Strings: map[string]string{"a": "1"}},
			b:      everything{Strings: map[string]string{"a": "2"}},
		},
		"StringMapKey": {
			reason: "Keys differ.",
			a:      everything{Strings: map[string]string{"a": ""}},
			b:      everything{Strings: map[string]string{"b": ""}},
		},
		"EmptyMap": {
			reason: "An empty map is an absent one.",
			a:      everything{Strings: map[string]string{}},
			b:      everything{},
			want:   true,
		},
		"NumberMap": {
			reason: "Other maps differ.",
			a:      everything{Numbers: map[string]int64{"a": 1}},
			b:      everything{Numbers: map[string]int64{"a": 2}},
		},
		"StringMapLonger": {
			reason: "A map that has all of another one's entries may have more.",
			a:      everything{Strings: map[string]string{"a": "1"}},
			b:      everything{Strings: map[string]string{"a": "1", "b": "2"}},
		},
		"NumberMapLonger": {
			reason: "So may another one.",
			a:      everything{Numbers: map[string]int64{"a": 1}},
			b:      everything{Numbers: map[string]int64{"a": 1, "b": 2}},
		},
		"NumberMapKey": {
			reason: "An absent key is not a zero value.",
			a:      everything{Numbers: map[string]int64{"a": 0}},
			b:      everything{Numbers: map[string]int64{"b": 0}},
		},
		"ListMap": {
			reason: "Maps of lists are the same if the lists are.",
			a:      everything{Lists: map[string][]string{"a": {"1"}}},
			b:      everything{Lists: map[string][]string{"a": {"1"}}},
			want:   true,
		},
		"Any": {
			reason: "What interfaces hold counts.",
			a:      everything{Any: map[string]any{"a": 1.0}},
			b:      everything{Any: map[string]any{"a": 1.0}},
			want:   true,
		},
		"AnyType": {reason: "Types count.", a: everything{Any: int64(1)}, b: everything{Any: float64(1)}},
		"AnyNil":  {reason: "Nil is not something.", a: everything{Any: 1}, b: everything{}},
		"Time": {
			reason: "The same time is the same.",
			a:      everything{Time: &now},
			b:      everything{Time: &metav1.Time{Time: now.Time}},
			want:   true,
		},
		"LaterTime": {reason: "Times differ.", a: everything{Time: &now}, b: everything{Time: &later}},
		"TimeElsewhere": {
			reason: "A time in another zone is not known to be the same.",
			a:      everything{Time: &now},
			b:      everything{Time: &here},
		},
		"Func": {
			reason: "Functions can't be compared.",
			a:      everything{Any: func() {}},
			b:      everything{Any: func() {}},
		},
		"QuantitiesDiffer": {
			reason: "Quantities differ.",
			a:      everything{Quantity: resource.MustParse("1Gi")},
			b:      everything{Quantity: resource.MustParse("2Gi")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, b := reflect.ValueOf(tc.a), reflect.ValueOf(tc.b)
			wants(t, tc.reason, "same(...), in both orders", []bool{tc.want, tc.want}, []bool{same(a, b), same(b, a)})
		})
	}
}

func TestStoredEqual(t *testing.T) {
	raw := func(s string) any { return runtime.RawExtension{Raw: []byte(s)} }
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cases := map[string]struct {
		reason string
		a, b   any
		want   bool
	}{
		"Newline": {reason: "White space is not stored.", a: raw("{\"a\": 1}\n"), b: raw(`{"a":1}`), want: true},
		"Order": {
			reason: "Nor is the order of keys.",
			a:      raw(`{"a":1,"b":[2]}`),
			b:      raw(`{"b":[2],"a":1}`),
			want:   true,
		},
		"Number": {
			reason: "Nor how a number was written.",
			a:      raw(`{"a":[1.0,1e2]}`),
			b:      raw(`{"a":[1,100]}`),
			want:   true,
		},
		"Milliseconds": {
			reason: "Nor fractions of a second.",
			a:      metav1.NewTime(at.Add(time.Millisecond)),
			b:      metav1.NewTime(at),
			want:   true,
		},
		"Zone": {
			reason: "Nor the zone.",
			a:      metav1.NewTime(at.In(time.FixedZone("x", 3600))),
			b:      metav1.NewTime(at),
			want:   true,
		},
		"AnotherNumber": {reason: "Another number is.", a: raw(`{"a":1}`), b: raw(`{"a":2}`)},
		"LargeNumber": {
			reason: "Also where a float could not tell.",
			a:      raw(`{"a":9007199254740993}`),
			b:      raw(`{"a":9007199254740992}`),
		},
		"LargestNumber": {
			reason: "Also where a float was rounded to a whole number.",
			a:      raw(`{"a":9.007199254740993e15}`),
			b:      raw(`{"a":9007199254740992}`),
		},
		"Fraction":     {reason: "Also a fraction.", a: raw(`{"a":1.5}`), b: raw(`{"a":1}`)},
		"ListOrder":    {reason: "The order of a list is.", a: raw(`{"a":[1,2]}`), b: raw(`{"a":[2,1]}`)},
		"NullOrAbsent": {reason: "Null is not known to be nothing.", a: raw(`{"a":null}`), b: raw(`{}`)},
		"Seconds": {
			reason: "Another second is another time.",
			a:      metav1.NewTime(at.Add(time.Second)),
			b:      metav1.NewTime(at),
		},
		"NotJSON": {reason: "Invalid JSON should not equal anything.", a: raw(`{`), b: raw(`{`)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, pair := range [][2]any{{tc.a, tc.b}, {tc.b, tc.a}} {
				wants(
					t, tc.reason, fmt.Sprintf("storedEqual(%s, %s)", pair[0], pair[1]), tc.want,
					storedEqual(pair[0], pair[1]),
				)
			}
		})
	}
}

// A textual object has its status in a struct that may be part of several types.
type textual struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	*Extra            `json:",inline"`
	textualPart       `json:",inline"`
}

// Extra is embedded as a pointer.
type Extra struct{}

type textualPart struct {
	Status textualStatus `json:"status,omitempty"`
}

type textualStatus struct {
	Phase string `json:"phase,omitempty"`
}

func (o *textual) DeepCopyObject() runtime.Object { c := *o; return &c }

func exampleKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Example"}
}

// kindOf returns the kind of an object's type.
func kindOf(o client.Object) Kind {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(exampleKind(), o)
	return NewKind(exampleKind(), s)
}

// A status is found and kept also if it is in an inlined struct.
func TestMoveStatus(t *testing.T) {
	k, a, b := kindOf(&textual{}), &textual{}, &textual{textualPart: textualPart{Status: textualStatus{Phase: "fine"}}}
	before := k.statusEqual(a, b)
	k.moveStatus(a, b)
	wants(t, "", "equal, phase, equal once moved", []any{false, "fine", true}, []any{
		before, a.Status.Phase, k.statusEqual(a, b),
	})
	u, fine := &unstructured.Unstructured{
		Object: map[string]any{},
	}, map[string]any{"status": map[string]any{"phase": "fine"}}
	k.moveStatus(u, &unstructured.Unstructured{Object: fine})
	wants(t, "A status takes the place of none.", "content", fine, u.Object)
	k.moveStatus(u, &unstructured.Unstructured{Object: map[string]any{}})
	wants(t, "No status takes the place of one.", "content", map[string]any{}, u.Object)
}

// Metadata is no status. Of an object that has none it is not known what differs.
func TestStatusEqual(t *testing.T) {
	buckets, none := NewKind(testkit.BucketKind(), testkit.Scheme()), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "uid", ResourceVersion: "7"},
	}
	s := sessionOf(none)
	s.kind = kindOf(none)
	wants(
		t, "", "statusEqual(...) of the same, of another ID, of another label, without a status",
		[]bool{true, false, true, false},
		[]bool{
			buckets.statusEqual(bucket(), bucket()),
			buckets.statusEqual(bucket(), bucket(func(b *v1alpha1.Bucket) { b.Status.AtProvider.ID = "x" })),
			buckets.statusEqual(bucket(), bucket(func(b *v1alpha1.Bucket) { b.Labels = map[string]string{"a": "b"} })),
			s.kind.statusEqual(none, none),
		},
	)
	newer := sessionOf(bucket()).OnlyAnnotationsDiffer(
		bucket(func(b *v1alpha1.Bucket) { b.ResourceVersion, b.Generation = "9", 3 }),
	)
	wants(
		t, "", "Tracks(...), OnlyAnnotationsDiffer(...) without a status, of another version",
		[]bool{true, false, true}, []bool{
			s.Tracks(none), s.OnlyAnnotationsDiffer(none), newer,
		},
	)
}

// The timer of the zero Options ends with its context.
func TestNewReconciler_Defaults(t *testing.T) {
	r := NewReconciler(testkit.NewAPI().Client(), Kind{}, nil, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.options.Wait(ctx, time.Hour); err == nil {
		t.Error("Wait(...) of a cancelled context: want an error")
	}
}

// Only the subresource for status is changed.
func TestSubResource(t *testing.T) {
	c := NewClient(testkit.NewAPI(bucket()).Client())
	_, status := c.SubResource("status").(*statusClient)
	_, scale := c.SubResource("scale").(*statusClient)
	wants(
		t, "Others are the client's own.", "a status writer for status, and for scale", []bool{true, false},
		[]bool{status, scale},
	)
}
