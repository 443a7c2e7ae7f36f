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
	name, ready, synced, externalName, message string
}

func (v view) shown(name string) shown {
	if !v.found {
		return shown{name: name, message: "NotFound"}
	}
	ready, synced := v.GetCondition(xpv2.TypeReady), v.GetCondition(xpv2.TypeSynced)
	status := func(c xpv2.Condition) string {
		if c.Reason == "" {
			return ""
		}
		return string(c.Status)
	}
	return shown{
		name: name, ready: status(ready), synced: status(synced),
		externalName: meta.GetExternalName(v), message: cmp.Or(ready.Message, synced.Message),
	}
}

// A finding is a row of the table: one observation, on one side.
type finding struct {
	where string // Where the story looked.
	seen  string // The observation, as measured.
	good  bool   // Whether the observation is as it should be.

	// broken says that upstream is known to fail here. It is the same for both sides.
	broken bool

	// short is the text of the overview, if this is the headline.
	short string
}

func (f finding) String() string {
	return fmt.Sprintf("%q: %s", f.where, strings.ReplaceAll(f.seen, "\n", ", "))
}

// knownToFail marks a finding that upstream is known to get wrong.
func (f finding) knownToFail() finding {
	f.broken = true
	return f
}

// headline makes the finding the one that the overview shows, in a word or two. Upstream is known to fail there.
func (f finding) headline(format string) finding {
	word, _, _ := strings.Cut(f.seen, "\n")
	word, _, _ = strings.Cut(word, " (")
	f.short = fmt.Sprintf(format, word)
	return f.knownToFail()
}

// either finds yes or no.
func either(where string, good bool, yes, no string) finding {
	if good {
		return finding{where: where, seen: yes, good: true}
	}
	return finding{where: where, seen: no}
}

// number finds a number that should be between least and most.
func number(where string, n, least, most int) finding {
	return finding{where: where, seen: fmt.Sprint(n), good: least <= n && n <= most}
}

// found makes a finding of a view.
func found(where string, v view, look func(v view) (seen string, good bool)) finding {
	seen, good := look(v)
	return finding{where: where, seen: seen, good: good}
}

// says finds the status and, in brackets, the reason of a condition.
func says(where string, v view, t xpv2.ConditionType, s corev1.ConditionStatus, r xpv2.ConditionReason) finding {
	return found(where, v, func(v view) (string, bool) {
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
func available(where string, v view) finding {
	return says(where, v, xpv2.TypeReady, corev1.ConditionTrue, xpv2.ReasonAvailable)
}

// deleting finds whether Ready says that the objects are being deleted.
func deleting(where string, v view) finding {
	return says(where, v, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonDeleting)
}

// why finds the reason why objects that are being deleted still exist, as far as conditions tell. It should be in
// both conditions: in Deleting, and in Ready, which most tools show.
func why(v view, r xpv2.ConditionReason, words string) finding {
	return found("why is it still there?", v, func(v view) (string, bool) {
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
func named(v view) finding {
	return found("external-name annotation", v, func(v view) (string, bool) {
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
func inCloud(where string, v view, want int) finding {
	return number(where, len(v.external), want, want)
}

// gone finds whether nothing is left.
func gone(v view) finding {
	return found("in the end", v, func(v view) (string, bool) {
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
