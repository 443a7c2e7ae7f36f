package deletion

import "testing"

func TestCut(t *testing.T) {
	cases := map[string]struct {
		reason           string
		s                string
		n                int
		wantEnd, wantMid string
	}{
		"Fits": {reason: "A text that fits should stay unchanged.", s: "abc", n: 3, wantEnd: "abc", wantMid: "abc"},
		"Runes": {
			reason:  "A longer text should be cut between two runes.",
			s:       "äöüäöüäöü",
			n:       11,
			wantEnd: "äöüä…",
			wantMid: "ä…öü",
		},
		"Invalid": {reason: "Invalid UTF-8 should be replaced.", s: "a\xffb", n: 9, wantEnd: "a�b", wantMid: "a�b"},
		"NoRoom": {
			reason:  "A limit shorter than the ellipsis should not cause a panic.",
			s:       "abcdef",
			n:       1,
			wantEnd: "…",
			wantMid: "…",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Cut(tc.s, tc.n); got != tc.wantEnd {
				t.Errorf("\n%s\nCut(...): want %q, got %q", tc.reason, tc.wantEnd, got)
			}
			if got := CutMiddle(tc.s, tc.n); got != tc.wantMid {
				t.Errorf("\n%s\nCutMiddle(...): want %q, got %q", tc.reason, tc.wantMid, got)
			}
		})
	}
}

func TestNames(t *testing.T) {
	cases := map[string]struct {
		reason string
		names  []string
		want   string
	}{
		"Unsorted": {reason: "The order should not depend on the list.", names: []string{"b", "a"}, want: "a, b"},
		"Many": {
			reason: "Five names should be listed, and the others counted.",
			names:  []string{"g", "f", "e", "d", "c", "b", "a"},
			want:   "a, b, c, d, e and 2 more",
		},
		"None": {reason: "An empty list should have no text."},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Names(tc.names); got != tc.want {
				t.Errorf("\n%s\nNames(...): want %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}
