package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A view is a managed resource as a user sees it, and what the cloud has of it.
type view struct {
	sample.Instance

	// found is false if there is no such object any more.
	found bool

	// external are the resources that were created for it and exist.
	external []cloud.Resource
}

// condition as kubectl shows it: status and, in brackets, reason.
func (v view) condition(t xpv2.ConditionType) string {
	switch c := v.GetCondition(t); {
	case !v.found:
		return "the object is gone"
	case c.Status == corev1.ConditionUnknown && c.Reason == "":
		return "not set"
	default:
		return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
	}
}

func (v view) has(t xpv2.ConditionType, s corev1.ConditionStatus, r xpv2.ConditionReason) bool {
	c := v.GetCondition(t)
	return v.found && c.Status == s && c.Reason == r
}

// why the object is still there although it is being deleted, as far as
// conditions say so.
func (v view) why() string {
	if !v.found {
		return "the object is gone"
	}
	if c := v.GetCondition(reconciler.TypeDeleting); c.Status == corev1.ConditionTrue {
		return fmt.Sprintf("%s\n%s", c.Reason, c.Message)
	}
	if c := v.GetCondition(xpv2.TypeReady); c.Reason == xpv2.ReasonDeleting && c.Message != "" {
		return c.Message
	}
	return "no condition says why"
}

// says reports whether the object has the reason of its deletion's state in both
// conditions: in Deleting, and in Ready, which most tools show.
func (v view) says(r xpv2.ConditionReason, words string) bool {
	d, ready := v.GetCondition(reconciler.TypeDeleting), v.GetCondition(xpv2.TypeReady)
	return v.has(reconciler.TypeDeleting, corev1.ConditionTrue, r) &&
		strings.Contains(d.Message, words) && ready.Message == d.Message
}

// storedName describes the external-name annotation: empty, stored, or wrong.
func (v view) storedName() string {
	switch name := meta.GetExternalName(v); {
	case name == "":
		return "empty"
	case slices.ContainsFunc(v.external, func(r cloud.Resource) bool { return r.ID == name }):
		return "stored"
	default:
		return "not the name of its external resource"
	}
}

// found makes a finding of what is to be seen in all views: once if it's the same
// in all, else counted. It is good if it is in each of them.
func found(where string, vs []view, show func(view) string, good func(view) bool) finding {
	f := finding{Where: where, Good: true}
	count := map[string]int{}
	var order []string

	for _, v := range vs {
		seen := show(v)
		if count[seen] == 0 {
			order = append(order, seen)
		}
		count[seen]++
		f.Good = f.Good && good(v)
	}

	if len(order) > 1 {
		for i, seen := range order {
			order[i] = fmt.Sprintf("%d of %d: %s", count[seen], len(vs), seen)
		}
	}

	f.Seen = strings.Join(order, "\n")
	return f
}

// ready finds what the Ready condition says.
func ready(where string, vs []view, s corev1.ConditionStatus, r xpv2.ConditionReason) finding {
	return found(where, vs,
		func(v view) string { return v.condition(xpv2.TypeReady) },
		func(v view) bool { return v.has(xpv2.TypeReady, s, r) })
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

func plurals(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// knownToFail marks what upstream is known to get wrong.
func (f finding) knownToFail() finding {
	f.Broken = true
	return f
}

// headline makes the finding the one that says in a word or two how the story ended.
func (f finding) headline(format string) finding {
	word, _, _ := strings.Cut(f.Seen, "\n")
	word, _, _ = strings.Cut(word, " (")
	word, _, _ = strings.Cut(word, " for ")
	f.short = fmt.Sprintf(format, word)
	return f
}
