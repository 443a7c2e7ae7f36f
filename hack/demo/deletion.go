package main

import (
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
)

// What the stories of silent deletions look at.

const whyRow = "why is it still there?"

// deleting finds what Ready says of objects that are being deleted.
func deleting(where string, vs []view) finding {
	return ready(where, vs, corev1.ConditionFalse, xpv2.ReasonDeleting)
}

// why finds the reason why objects that are being deleted are still there.
func why(vs []view, r xpv2.ConditionReason, words string) finding {
	return found(whyRow, vs, view.why, func(v view) bool { return v.says(r, words) }).knownToFail()
}

// gone finds that nothing is left.
func gone(vs []view) finding {
	return found("in the end", vs,
		func(v view) string {
			switch {
			case v.found:
				return "the object is still there"
			case len(v.external) > 0:
				return "gone, but not from the cloud"
			default:
				return "gone, from the cloud too"
			}
		},
		func(v view) bool { return !v.found && len(v.external) == 0 })
}
