package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A view is a managed resource as a user sees it, with its external resources.
type view struct {
	sample.Instance

	// found is false if there is no such object any more.
	found bool

	// external are the existing resources that were created for it.
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

// why says why the object still exists although it is being deleted, as far as
// conditions tell.
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

// found makes a finding of all views: shown once if they are the same, else counted. It is good
// if each of them is.
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

// says finds the status and the reason of a condition.
func says(where string, vs []view, t xpv2.ConditionType, s corev1.ConditionStatus, r xpv2.ConditionReason) finding {
	return found(where, vs,
		func(v view) string { return v.condition(t) },
		func(v view) bool { return v.has(t, s, r) })
}

// available finds whether Ready says that the external resources are available.
func available(where string, vs []view) finding {
	return says(where, vs, xpv2.TypeReady, corev1.ConditionTrue, xpv2.ReasonAvailable)
}

// each finds whether a test is true of all views.
func each(where string, vs []view, yes, no string, good func(view) bool) finding {
	return found(where, vs, func(v view) string { return either("", good(v), yes, no).Seen }, good)
}

// named finds whether the external name is stored.
func named(vs []view) finding {
	stored := func(v view) bool { return v.storedName() == "stored" }
	return found("external-name annotation", vs, view.storedName, stored)
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

const whyRow = "why is it still there?"

// deleting finds whether Ready says that the objects are being deleted.
func deleting(where string, vs []view) finding {
	return says(where, vs, xpv2.TypeReady, corev1.ConditionFalse, xpv2.ReasonDeleting)
}

// why finds the reason why objects that are being deleted still exist.
func why(vs []view, r xpv2.ConditionReason, words string) finding {
	return found(whyRow, vs, view.why, func(v view) bool { return v.says(r, words) }).knownToFail()
}

// gone finds whether nothing is left.
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

// read returns an object as it now is, and whether there still is one.
func read(ctx context.Context, c client.Reader, o sample.Instance) (sample.Instance, bool, error) {
	now, ok := o.DeepCopyObject().(sample.Instance)
	if !ok {
		return nil, false, fmt.Errorf("a copy of %T is of another type", o)
	}
	err := c.Get(ctx, client.ObjectKeyFromObject(o), now)
	if kerrors.IsNotFound(err) {
		return o, false, nil
	}
	return now, err == nil, err
}
