package seam

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestStoredEqual(t *testing.T) {
	raw := func(s string) any { return runtime.RawExtension{Raw: []byte(s)} }
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	cases := map[string]struct {
		reason string
		a, b   any
		want   bool
	}{
		"Newline":       {reason: "White space is not stored.", a: raw("{\"a\": 1}\n"), b: raw(`{"a":1}`), want: true},
		"Order":         {reason: "Nor is the order of keys.", a: raw(`{"a":1,"b":[2]}`), b: raw(`{"b":[2],"a":1}`), want: true},
		"Number":        {reason: "Nor how a number was written.", a: raw(`{"a":[1.0,1e2]}`), b: raw(`{"a":[1,100]}`), want: true},
		"Milliseconds":  {reason: "Nor fractions of a second.", a: metav1.NewTime(at.Add(time.Millisecond)), b: metav1.NewTime(at), want: true},
		"Zone":          {reason: "Nor the zone.", a: metav1.NewTime(at.In(time.FixedZone("x", 3600))), b: metav1.NewTime(at), want: true},
		"AnotherNumber": {reason: "Another number is.", a: raw(`{"a":1}`), b: raw(`{"a":2}`)},
		"LargeNumber":   {reason: "Also where a float could not tell.", a: raw(`{"a":9007199254740993}`), b: raw(`{"a":9007199254740992}`)},
		"Fraction":      {reason: "Also a fraction.", a: raw(`{"a":1.5}`), b: raw(`{"a":1}`)},
		"ListOrder":     {reason: "The order of a list is.", a: raw(`{"a":[1,2]}`), b: raw(`{"a":[2,1]}`)},
		"NullOrAbsent":  {reason: "Null is not known to be nothing.", a: raw(`{"a":null}`), b: raw(`{}`)},
		"Seconds":       {reason: "Another second is another time.", a: metav1.NewTime(at.Add(time.Second)), b: metav1.NewTime(at)},
		"NotJSON":       {reason: "What can't be stored is equal to nothing.", a: raw(`{`), b: raw(`{`)},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, pair := range [][2]any{{tc.a, tc.b}, {tc.b, tc.a}} {
				if got := storedEqual(pair[0], pair[1]); got != tc.want {
					t.Errorf("\n%s\nstoredEqual(%s, %s): want %t, got %t", tc.reason, pair[0], pair[1], tc.want, got)
				}
			}
		})
	}
}
