package sample_test

import (
	"context"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

var errBoom = errors.New("boom")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func database(uid string) *v1alpha1.Database {
	d := v1alpha1.NewDatabase("one")
	d.UID = "uid"

	if uid != "" {
		meta.SetExternalName(d, uid)
	}

	return d
}

func must(t *testing.T, what string, err error) {
	t.Helper()

	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func connect(t *testing.T, c managed.ExternalConnector) managed.ExternalClient {
	t.Helper()

	e, err := c.Connect(t.Context(), database(""))
	must(t, "Connect()", err)

	return e
}

// TestAsyncOperations follows one asynchronous create through its ends.
func TestAsyncOperations(t *testing.T) {
	type observation struct {
		Exists, LateInitialized bool
		ExternalName            string
		LastOperation           corev1.ConditionStatus
	}

	cases := map[string]struct {
		reason  string
		hooks   cloud.Hooks
		finish  bool
		restart bool
		failed  error
		want    []observation
	}{
		"Running": {
			reason: "While the create runs the resource is said to exist.",
			want:   []observation{{Exists: true, LastOperation: corev1.ConditionUnknown}},
		},
		"Done": {
			reason: "The first observation after the end brings the name, the next one finds nothing new.",
			finish: true,
			want: []observation{
				{Exists: true, LateInitialized: true, ExternalName: "database-0001", LastOperation: corev1.ConditionTrue},
				{Exists: true, ExternalName: "database-0001", LastOperation: corev1.ConditionTrue},
			},
		},
		"Failed": {
			reason: "The observation after a failure tells of it, and that there is no resource.",
			hooks:  cloud.Hooks{Before: func(context.Context, cloud.Call) error { return errBoom }},
			finish: true,
			failed: errBoom,
			want:   []observation{{LastOperation: corev1.ConditionFalse}},
		},
		"Restarted": {
			reason:  "A new process knows nothing of what the old one made.",
			finish:  true,
			restart: true,
			want:    []observation{{LastOperation: corev1.ConditionUnknown}},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			world := cloud.New(cloud.Options{})
			c := sample.NewAsync[resource.Managed](world)
			e := connect(t, c)
			d := database("")

			// A second create while the first one runs does nothing.
			for range 2 {
				_, err := e.Create(ctx, d)
				must(t, "Create()", err)
			}

			if c.Pending() != 1 || meta.GetExternalName(d) != "" {
				t.Errorf("\n%s\nCreate(): want one pending operation and no name, got %d and %q", tc.reason, c.Pending(), meta.GetExternalName(d))
			}

			world.SetHooks(tc.hooks)

			if tc.finish {
				if err := c.Finish(ctx); !errors.Is(err, tc.failed) {
					t.Errorf("\n%s\nFinish(): want error %v, got %v", tc.reason, tc.failed, err)
				}
			}

			if tc.restart {
				e = connect(t, sample.NewAsync[resource.Managed](world))
			}

			for i, want := range tc.want {
				o, err := e.Observe(ctx, d)
				must(t, "Observe()", err)

				got := observation{
					Exists:          o.ResourceExists,
					LateInitialized: o.ResourceLateInitialized,
					ExternalName:    meta.GetExternalName(d),
					LastOperation:   d.GetCondition(sample.TypeLastAsyncOperation).Status,
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("\n%s\nObserve() number %d: -want, +got:\n%s", tc.reason, i+1, diff)
				}
			}
		})
	}
}

func TestCreateRequests(t *testing.T) {
	cases := map[string]struct {
		reason string
		opts   []sample.Option
		want   []string
	}{
		"Plain":  {reason: "The cloud assigns a new id each time.", want: []string{"database-0001", "database-0002"}},
		"Tokens": {reason: "A token makes the second create find the first.", opts: []sample.Option{sample.WithCreateTokens()}, want: []string{"database-0001", "database-0001"}},
		"Names":  {reason: "The external name is asked for.", opts: []sample.Option{sample.WithDeterministicNames()}, want: []string{"mine", ""}},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := connect(t, sample.NewSync[resource.Managed](cloud.New(cloud.Options{}), tc.opts...))

			for i, want := range tc.want {
				d := database("mine")
				if _, err := e.Create(t.Context(), d); err != nil {
					if want != "" || !errors.Is(err, cloud.ErrAlreadyExists) {
						t.Errorf("\n%s\nCreate() number %d: %v", tc.reason, i+1, err)
					}

					continue
				}

				if got := meta.GetExternalName(d); got != want {
					t.Errorf("\n%s\nCreate() number %d: want %q, got %q", tc.reason, i+1, want, got)
				}
			}
		})
	}
}

func TestDeepCopy(t *testing.T) {
	d := v1alpha1.NewDatabase("one")
	d.Spec.ForProvider.Region = "north"
	d.Spec.WriteConnectionSecretToReference = &xpv2.SecretReference{Name: "a", Namespace: "b"}
	d.SetConditions(xpv2.Available())

	b := v1alpha1.NewBucket("default", "one")
	b.Spec.ForProvider.Region = "north"
	b.SetConditions(xpv2.Available())

	lists := []resource.ManagedList{&v1alpha1.DatabaseList{Items: []v1alpha1.Database{*d}}, &v1alpha1.BucketList{Items: []v1alpha1.Bucket{*b}}}

	for _, l := range lists {
		c, ok := l.DeepCopyObject().(resource.ManagedList)
		if diff := cmp.Diff(l, c); !ok || diff != "" {
			t.Errorf("%T: -want, +got:\n%s", l, diff)
		}

		i, ok := c.GetItems()[0].(sample.Instance)
		if !ok {
			t.Fatalf("%T: its items are of another type", l)
		}

		i.GetForProvider().Region = "south"
		i.GetManagementPolicies()[0] = xpv2.ManagementActionObserve
		i.SetConditions(xpv2.Deleting())
	}

	if d.Spec.ForProvider.Region != "north" || b.Spec.ForProvider.Region != "north" || d.Spec.ManagementPolicies[0] != "*" ||
		b.Spec.ManagementPolicies[0] != "*" || d.GetCondition(xpv2.TypeReady).Reason != xpv2.ReasonAvailable || b.GetCondition(xpv2.TypeReady).Reason != xpv2.ReasonAvailable {
		t.Errorf("what is done to a copy must not show in the original")
	}
}
