package managed_test

import (
	"context"
	"reflect"
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	"github.com/crossplane/crossplane-runtime/v2/pkg/test"
	core "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	graft "github.com/crossplane-graft/graft/pkg/managed"
)

// newReconciler replaces NewReconciler in upstream's tests. Their mocks panic if a function is
// called that the test leaves nil, because upstream's reconciler does not call it there. Graft
// writes more often: it reports a deletion before it connects, and stores annotations with a
// patch. So a function that the test leaves nil succeeds.
func newReconciler(m manager.Manager, of resource.ManagedKind, o ...graft.ReconcilerOption) *graft.Reconciler {
	if f, ok := m.(*fake.Manager); ok {
		if c, ok := f.Client.(*test.MockClient); ok {
			complete(c)
			c.MockStatusUpdate = withoutReport(c.MockStatusUpdate)
		}
	}
	return graft.NewReconciler(m, of, o...)
}

// complete replaces each function of c that is nil by one that returns no error.
func complete(c *test.MockClient) {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() != reflect.Func || !f.IsNil() {
			continue
		}
		f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value {
			var results []reflect.Value
			for o := range f.Type().NumOut() {
				results = append(results, reflect.Zero(f.Type().Out(o)))
			}
			return results
		}))
	}
}

// withoutReport hides what Graft reports about a deletion from a test's function, which expects
// upstream's conditions: the Deleting condition, and the message of Ready=False/Deleting.
func withoutReport(update test.MockSubResourceUpdateFn) test.MockSubResourceUpdateFn {
	return func(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
		// The mocks' own copies lose fields.
		switch mg := o.(type) {
		case *fake.LegacyManaged:
			shown := *mg
			shown.Conditions = upstreamConditions(mg.Conditions)
			o = &shown
		case *fake.ModernManaged:
			shown := *mg
			shown.Conditions = upstreamConditions(mg.Conditions)
			o = &shown
		}
		return update(ctx, o, opts...)
	}
}

func upstreamConditions(all []core.Condition) []core.Condition {
	var out []core.Condition
	for _, c := range all {
		if c.Reason == core.ReasonDeleting {
			c.Message = ""
		}
		if c.Type != "Deleting" {
			out = append(out, c)
		}
	}
	return out
}

var defaultSupportedManagementPolicies = upstream.ExportDefaultSupportedManagementPolicies

func withConnectionPublishers(p graft.ConnectionPublisher) graft.ReconcilerOption {
	return graft.Upstream(upstream.ExportWithConnectionPublishers(p))
}

func withLocalConnectionPublishers(p graft.LocalConnectionPublisher) graft.ReconcilerOption {
	return graft.Upstream(upstream.ExportWithLocalConnectionPublishers(p))
}

// equateTimes replaces upstream's option that equates times. Upstream's tests compare the times in
// annotations as texts, so a test that runs when a second ends fails now and then.
func equateTimes() cmp.Option {
	const margin = time.Minute
	near := func(a, b string) bool {
		at, err := time.Parse(time.RFC3339, a)
		bt, other := time.Parse(time.RFC3339, b)
		return err == nil && other == nil && at.Sub(bt).Abs() < margin
	}
	return cmp.Options{
		cmpopts.EquateApproxTime(margin),
		cmp.FilterValues(near, cmp.Comparer(near)),
	}
}
