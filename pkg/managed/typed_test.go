package managed

import (
	"context"
	"testing"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpfake "github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/testkit"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A client of one type of managed resource is not called with another.
func TestTypedClientOfAnotherType(t *testing.T) {
	called := 0
	c := &typedClient[*testkit.Bucket]{inner: TypedExternalClientFns[*testkit.Bucket]{
		ObserveFn: func(context.Context, *testkit.Bucket) (ExternalObservation, error) {
			called++
			return ExternalObservation{}, nil
		},
		CreateFn: func(context.Context, *testkit.Bucket) (ExternalCreation, error) {
			called++
			return ExternalCreation{}, nil
		},
		UpdateFn: func(context.Context, *testkit.Bucket) (ExternalUpdate, error) {
			called++
			return ExternalUpdate{}, nil
		},
		DeleteFn: func(context.Context, *testkit.Bucket) (ExternalDelete, error) {
			called++
			return ExternalDelete{}, nil
		},
	}}

	calls := map[string]func(mg resource.Managed) error{
		"Observe": func(mg resource.Managed) error { _, err := c.Observe(t.Context(), mg); return err },
		"Create":  func(mg resource.Managed) error { _, err := c.Create(t.Context(), mg); return err },
		"Update":  func(mg resource.Managed) error { _, err := c.Update(t.Context(), mg); return err },
		"Delete":  func(mg resource.Managed) error { _, err := c.Delete(t.Context(), mg); return err },
	}

	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			called = 0

			if err := call(&testkit.Database{}); err == nil || called != 0 {
				t.Errorf("%s of another type: want an error and no call, got %v and %d", name, err, called)
			}

			if err := call(bucket()); err != nil || called != 1 {
				t.Errorf("%s: want no error and one call, got %v and %d", name, err, called)
			}
		})
	}
}

// A connector that returns a client and an error has not connected.
func TestTypedConnectorFails(t *testing.T) {
	boom := errors.New("boom")
	client := TypedExternalClientFns[*testkit.Bucket]{}

	cases := map[string]struct {
		reason string
		client TypedExternalClient[*testkit.Bucket]
		err    error
	}{
		"Error":          {reason: "The error is returned.", err: boom},
		"ErrorAndClient": {reason: "The error is returned, and no client.", client: client, err: boom},
		"Neither":        {reason: "Nothing is returned, which the caller reports."},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &typedConnector[*testkit.Bucket]{inner: TypedExternalConnectDisconnectorFns[*testkit.Bucket]{
				ConnectFn: func(context.Context, *testkit.Bucket) (TypedExternalClient[*testkit.Bucket], error) {
					return tc.client, tc.err
				},
			}}

			got, err := c.Connect(t.Context(), bucket())
			if got != nil || !errors.Is(err, tc.err) {
				t.Errorf("\n%s\nConnect(...): want no client and %v, got %v and %v", tc.reason, tc.err, got, err)
			}
		})
	}
}

func TestAllows(t *testing.T) {
	cases := map[string]struct {
		reason   string
		policies []xpv2.ManagementAction
		want     bool
	}{
		"Default":  {reason: "Without policies all is allowed.", want: true},
		"All":      {reason: "All actions are allowed.", policies: []xpv2.ManagementAction{xpv2.ManagementActionAll}, want: true},
		"OneOfTwo": {reason: "One of the actions is enough.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionDelete}, want: true},
		"Others":   {reason: "Other actions are not enough.", policies: []xpv2.ManagementAction{xpv2.ManagementActionObserve, xpv2.ManagementActionUpdate}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := bucket()
			b.SetManagementPolicies(tc.policies)

			if got := seam.Allows(b, xpv2.ManagementActionCreate, xpv2.ManagementActionDelete); got != tc.want {
				t.Errorf("\n%s\nallows(...): want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}

// A managed resource that waits for the garbage collector alone needs no provider
// config.
func TestIsLeft(t *testing.T) {
	cases := map[string]struct {
		reason     string
		deleted    bool
		finalizers []string
		want       bool
	}{
		"NotDeleted": {reason: "It is in use."},
		"Deleting":   {reason: "The provider still needs it.", deleted: true, finalizers: []string{FinalizerName}},
		"None":       {reason: "Nothing is left to do.", deleted: true, want: true},
		"Dependents": {reason: "The garbage collector deletes dependents.", deleted: true, finalizers: []string{metav1.FinalizerDeleteDependents}, want: true},
		"Orphans":    {reason: "The garbage collector orphans dependents.", deleted: true, finalizers: []string{metav1.FinalizerOrphanDependents}, want: true},
		"Both":       {reason: "The provider needs it, too.", deleted: true, finalizers: []string{metav1.FinalizerOrphanDependents, FinalizerName}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := bucket(finalizers(tc.finalizers...))
			if tc.deleted {
				deleting(b)
				b.SetFinalizers(tc.finalizers)
			}

			if got := isLeft(b); got != tc.want {
				t.Errorf("\n%s\nisLeft(...): want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}

// An object that no reconcile is about goes to the updater that writes all of it.
func TestCriticalAnnotationsOfUntracked(t *testing.T) {
	boom := errors.New("boom")
	u := &criticalAnnotations{whole: upstream.CriticalAnnotationUpdateFn(func(context.Context, client.Object) error { return boom })}

	if err := u.UpdateCriticalAnnotations(t.Context(), bucket()); !errors.Is(err, boom) {
		t.Errorf("UpdateCriticalAnnotations(...): want %v, got %v", boom, err)
	}
}

// A manager that embeds a nil manager.Manager, as those made for tests do, can't run
// anything.
func TestManagerThatRunsNothing(t *testing.T) {
	a := testkit.NewAPI()

	says(t, "The tracker would never run.", "can't run the tracker of operations", func() {
		NewReconciler(&xpfake.Manager{Client: a.Client(), Scheme: testkit.Scheme()}, resource.ManagedKind(testkit.BucketKind()),
			WithManagementPolicies(), connects(upstream.ExternalClientFns{}), WithAsync(asyncstate.NewTracker(a.Client(), asyncstate.WithLiveReader(a.Live()))))
	})

	type other = manager.Manager

	cases := map[string]struct {
		reason string
		m      manager.Manager
		want   bool
	}{
		"Embeds":    {reason: "Its manager runs things.", m: struct{ manager.Manager }{a.Manager()}, want: true},
		"EmbedsNil": {reason: "It has no manager.", m: struct{ manager.Manager }{}},
		"NoField":   {reason: "It has no field of that name.", m: struct{ other }{a.Manager()}, want: true},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := runs(tc.m) != nil; got != tc.want {
				t.Errorf("\n%s\nruns(...): want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}
