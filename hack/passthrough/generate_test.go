package main

import (
	"strings"
	"testing"
)

const testReconciler = `
type Reconciler struct{}
type ReconcilerOption func(*Reconciler)
`

func TestGenerateRefuses(t *testing.T) {
	cases := map[string]struct {
		reason   string
		upstream string
		want     string
	}{
		"Variable": {
			reason:   "A copy of a variable would go its own way.",
			upstream: `var V int`,
			want:     "V: an exported variable can't be passed through",
		},
		"OptionParameter": {
			reason:   "We should refuse an option as a parameter, because it cannot be turned into upstream's.",
			upstream: `func F(o []ReconcilerOption) {}`,
			want:     "F: its signature refers to Reconciler or ReconcilerOption",
		},
		"ReconcilerInType": {
			reason:   "An alias would hand out upstream's reconciler.",
			upstream: `type T interface{ M(map[string]chan *Reconciler) }`,
			want:     "T: an alias would refer to upstream's Reconciler or ReconcilerOption",
		},
		"Unexported": {
			reason: "A type that only upstream can name has no spelling here.",
			upstream: `
				type hidden int
				func F() []hidden { return nil }`,
			want: "F: its signature has upstream's unexported type hidden",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := generate(checkUpstream(t, testReconciler+tc.upstream), nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\ngenerate(...): want an error with %q, got: %v", tc.reason, tc.want, err)
			}
		})
	}
}
