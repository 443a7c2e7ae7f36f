package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/claim"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A view is an object as a user sees it, with its external resources.
type view struct {
	*claim.Unstructured // Of any kind: it has conditions.

	found    bool             // Whether the object still exists.
	external []cloud.Resource // The existing resources that were created for the object.
}

// see reads an object of any kind.
func see(ctx context.Context, c client.Reader, k schema.GroupVersionKind, key client.ObjectKey) (view, error) {
	v := view{Unstructured: claim.New(claim.WithGroupVersionKind(k))}
	err := c.Get(ctx, key, v.GetUnstructured())
	v.found = err == nil
	return v, client.IgnoreNotFound(err)
}

// A shown object is what kubectl get shows of an object, and the message that tools show
// beside it.
type shown struct {
	Name         string `json:"name"`
	Ready        string `json:"ready,omitempty"`
	Synced       string `json:"synced,omitempty"`
	ExternalName string `json:"externalName,omitempty"`
	Message      string `json:"message,omitempty"`
}

func (v view) shown(name string) shown {
	if !v.found {
		return shown{Name: name, Message: "NotFound"}
	}
	ready, synced := v.GetCondition(xpv2.TypeReady), v.GetCondition(xpv2.TypeSynced)
	status := func(c xpv2.Condition) string {
		if c.Reason == "" {
			return ""
		}
		return string(c.Status)
	}
	return shown{
		Name: name, Ready: status(ready), Synced: status(synced),
		ExternalName: meta.GetExternalName(v), Message: cmp.Or(ready.Message, synced.Message),
	}
}

// A finding is a row of the table: one observation, on one side.
type finding struct {
	Where string `json:"where"` // Where the story looked.
	Seen  string `json:"seen"`  // The observation, as measured.
	Good  bool   `json:"good"`  // Whether the observation is as it should be.

	// Broken says that upstream is known to fail here. It is the same for both sides.
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

// says finds the status and, in brackets, the reason of a condition.
func says(where string, vs []view, t xpv2.ConditionType, s corev1.ConditionStatus, r xpv2.ConditionReason) finding {
	return found(where, vs, func(v view) (string, bool) {
		switch c := v.GetCondition(t); {
		case !v.found:
			return "the object is gone", false
		case c.Reason == "":
			return "not set", false
		default:
			return fmt.Sprintf("%s (%s)", c.Status, c.Reason), c.Status == s && c.Reason == r
		}
	})
}

// available finds whether Ready says that the external resources are available.
func available(where string, vs []view) finding {
	return says(where, vs, xpv2.TypeReady, corev1.ConditionTrue, xpv2.ReasonAvailable)
}

// deleting finds whether Ready says that the objects are being deleted.
func deleting(where string, vs []view) finding {
	return says(where, vs, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonDeleting)
}

// why finds the reason why objects that are being deleted still exist, as far as conditions tell. It should be in
// both conditions: in Deleting, and in Ready, which most tools show.
func why(vs []view, r xpv2.ConditionReason, words string) finding {
	return found("why is it still there?", vs, func(v view) (string, bool) {
		d, ready := v.GetCondition(reconciler.TypeDeleting), v.GetCondition(xpv2.TypeReady)
		switch {
		case !v.found:
			return "the object is gone", false
		case d.Status == corev1.ConditionTrue:
			good := d.Reason == r && strings.Contains(d.Message, words) && ready.Message == d.Message
			return fmt.Sprintf("%s\n%s", d.Reason, d.Message), good
		case ready.Reason == xpv2.ReasonDeleting && ready.Message != "":
			return ready.Message, false
		default:
			return "no condition says why", false
		}
	}).knownToFail()
}

// named finds whether the external-name annotation is stored: it is empty, stored, or wrong.
func named(vs []view) finding {
	return found("external-name annotation", vs, func(v view) (string, bool) {
		switch name := meta.GetExternalName(v); {
		case name == "":
			return "empty", false
		case slices.ContainsFunc(v.external, func(r cloud.Resource) bool { return r.ID == name }):
			return "stored", true
		default:
			return "not the name of its external resource", false
		}
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
