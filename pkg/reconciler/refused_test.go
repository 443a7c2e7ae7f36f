package reconciler_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/unstructured/composite"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/reconciler"
)

// A schema or a webhook that refuses the Deleting condition must not keep the inner
// reconciler from writing its status, and so from removing its finalizer.
func TestRefusedReport(t *testing.T) {
	enum := func(cs []xpv2.Condition) bool {
		return slices.ContainsFunc(cs, func(c xpv2.Condition) bool { return c.Type == reconciler.TypeDeleting })
	}
	invalid := kerrors.NewInvalid(composites.GroupKind(), "x", field.ErrorList{
		field.NotSupported(field.NewPath("status", "conditions"), "Deleting", []string{"Ready"}),
	})
	cases := map[string]struct {
		reason  string
		refuses func(cs []xpv2.Condition) bool
		err     error
	}{
		"Enum": {reason: "The schema lists the types of conditions.", refuses: enum, err: invalid},
		"MaxItems": {
			reason:  "The schema has room for two conditions.",
			refuses: func(cs []xpv2.Condition) bool { return len(cs) > 2 },
			err:     invalid,
		},
		"Failing": {
			reason:  "A webhook fails because of the condition.",
			refuses: enum,
			err:     kerrors.NewInternalError(errors.New("failed calling webhook")),
		},
	}
	writes := map[string]func(ctx context.Context, c client.Client, o, read client.Object) error{
		"Update": func(ctx context.Context, c client.Client, o, _ client.Object) error {
			return c.Status().Update(ctx, o)
		},
		"Patch": func(ctx context.Context, c client.Client, o, read client.Object) error {
			return c.Status().Patch(ctx, o, client.MergeFrom(read))
		},
	}
	for name, tc := range cases {
		for verb, write := range writes {
			t.Run(name+"/"+verb, func(t *testing.T) {
				o := newComposite()
				c := newCluster(o)
				c.api.Before = func(_ context.Context, r testkit.Request) error {
					if verbOf(r) == "status" && tc.refuses(conditionsIn(t, r)) {
						return tc.err
					}
					return nil
				}
				r := newTestReconciler(t, c, o)
				r.inner = func(ctx context.Context, c client.Client, o *composite.Unstructured) error {
					read, _ := o.DeepCopyObject().(client.Object)
					o.SetConditions(xpv2.Deleting(), xpv2.ReconcileSuccess())
					if err := write(ctx, c, o, read); err != nil {
						return err
					}
					o.SetFinalizers(nil)
					return c.Update(ctx, o)
				}

				// An error that may pass holds up the inner reconciler for five reconciles.
				for range 6 {
					_, _ = r.Reconcile(t.Context(), requestFor(o))
				}
				expectEqual(t, tc.reason, "exists", false, c.exists(o))
				expectEqual(
					t, "An event says that the deletion is not reported.", "events", true,
					r.countEvents("CannotReportDeletion") > 0,
				)
			})
		}
	}
}

// A Deleting condition that the API server refuses doesn't count as removed by another
// controller.
func TestRefusedReport_IsNotReplaced(t *testing.T) {
	o, n := newComposite(), 0
	c := newCluster(o)
	c.api.Before = func(_ context.Context, r testkit.Request) error {
		if verbOf(r) != "status" || !slices.ContainsFunc(conditionsIn(t, r), func(c xpv2.Condition) bool {
			return c.Type == reconciler.TypeDeleting
		}) {
			return nil
		}
		return kerrors.NewInvalid(composites.GroupKind(), "x", nil)
	}
	r := newTestReconciler(t, c, o)
	r.inner = func(ctx context.Context, c client.Client, o *composite.Unstructured) error {
		n++
		o.SetConditions(xpv2.ReconcileSuccess().WithMessage(strconv.Itoa(n)))
		return c.Status().Update(ctx, o)
	}
	for range 10 {
		result := mustReconcile(t, r, o)
		expectEqual(t, "No other writer has to be waited for.", "next reconcile", true, result.IsZero())
	}
}

// conditionsIn returns the conditions of an object that is updated, or in a patch.
func conditionsIn(t *testing.T, r testkit.Request) []xpv2.Condition {
	t.Helper()
	u := &composed.Unstructured{}
	if r.Verb == testkit.StatusPatch {
		must(t, json.Unmarshal([]byte(r.Body), &u.Object))
	} else if o, ok := r.Object.(interface{ UnstructuredContent() map[string]any }); ok {
		u.Object = o.UnstructuredContent()
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	var out []xpv2.Condition
	for _, c := range list {
		m, _ := c.(map[string]any)
		ct, _ := m["type"].(string)
		out = append(out, u.GetCondition(xpv2.ConditionType(ct)))
	}
	return out
}
