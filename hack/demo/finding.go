package main

import (
	"fmt"
	"strings"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
)

// A finding is a row of the table: one observation, on one side.
type finding struct {
	// Where the story looked.
	Where string `json:"where"`

	// Seen is the observation, as measured.
	Seen string `json:"seen"`

	// Good reports whether it is as it should be.
	Good bool `json:"good"`

	// Broken says that upstream is known to fail here. It is the same for both
	// sides.
	Broken bool `json:"upstreamIsKnownToFail"`

	// short is the text of the overview, if this is the headline.
	short string
}

func (f finding) String() string {
	return fmt.Sprintf("%q: %s", f.Where, strings.ReplaceAll(f.Seen, "\n", ", "))
}

// knownToFail marks a finding that upstream is known to get wrong.
func (f finding) knownToFail() finding {
	f.Broken = true
	return f
}

// headline makes the finding the one that the overview shows, in a word or two. Upstream is known to fail there.
func (f finding) headline(format string) finding {
	word, _, _ := strings.Cut(f.Seen, "\n")
	word, _, _ = strings.Cut(word, " (")
	word, _, _ = strings.Cut(word, " for ")
	f.short = fmt.Sprintf(format, word)
	return f.knownToFail()
}

// either finds yes or no.
func either(where string, good bool, yes, no string) finding {
	if good {
		return finding{Where: where, Seen: yes, Good: true}
	}
	return finding{Where: where, Seen: no}
}

// number finds a number that should be between least and most.
func number(where string, n, least, most int) finding {
	return finding{Where: where, Seen: fmt.Sprint(n), Good: least <= n && n <= most}
}

// found makes a finding of all views: shown once if they are the same, else counted. It is good
// if each of them is.
func found(where string, vs []view, look func(v view) (seen string, good bool)) finding {
	f := finding{Where: where, Good: true}
	count := map[string]int{}
	var order []string
	for _, v := range vs {
		seen, good := look(v)
		if count[seen] == 0 {
			order = append(order, seen)
		}
		count[seen]++
		f.Good = f.Good && good
	}
	if len(order) > 1 {
		for i, seen := range order {
			order[i] = fmt.Sprintf("%d of %d: %s", count[seen], len(vs), seen)
		}
	}
	f.Seen = strings.Join(order, "\n")
	return f
}

// each finds whether a test is true of all views.
func each(where string, vs []view, yes, no string, good func(view) bool) finding {
	return found(where, vs, func(v view) (string, bool) {
		f := either(where, good(v), yes, no)
		return f.Seen, f.Good
	})
}

// says finds the status and the reason of a condition.
func says(where string, vs []view, t xpv2.ConditionType, s corev1.ConditionStatus, r xpv2.ConditionReason) finding {
	return found(where, vs, func(v view) (string, bool) { return v.condition(t), v.has(t, s, r) })
}

// available finds whether Ready says that the external resources are available.
func available(where string, vs []view) finding {
	return says(where, vs, xpv2.TypeReady, corev1.ConditionTrue, xpv2.ReasonAvailable)
}

// deleting finds whether Ready says that the objects are being deleted.
func deleting(where string, vs []view) finding {
	return says(where, vs, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonDeleting)
}

// why finds the reason why objects that are being deleted still exist.
func why(vs []view, r xpv2.ConditionReason, words string) finding {
	return found("why is it still there?", vs, func(v view) (string, bool) {
		return v.why(), v.says(r, words)
	}).knownToFail()
}

// named finds whether the external name is stored.
func named(vs []view) finding {
	return found("external-name annotation", vs, func(v view) (string, bool) {
		return v.storedName(), v.storedName() == "stored"
	})
}

// inCloud finds how many external resources there are.
func inCloud(where string, vs []view, each int) finding {
	f := finding{Where: where, Good: true}
	n := 0
	for _, v := range vs {
		n += len(v.external)
		f.Good = f.Good && len(v.external) == each
	}
	f.Seen = fmt.Sprintf("%d for %s", n, plurals(len(vs), "managed resource", "managed resources"))
	return f
}

// gone finds whether nothing is left.
func gone(vs []view) finding {
	return found("in the end", vs, func(v view) (string, bool) {
		switch {
		case v.found:
			return "the object is still there", false
		case len(v.external) > 0:
			return "gone, but not from the cloud", false
		default:
			return "gone, from the cloud too", true
		}
	})
}

func plurals(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
