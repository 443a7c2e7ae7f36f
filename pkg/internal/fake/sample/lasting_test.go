package sample_test

import (
	"context"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// Create doesn't return before the resource is ready, or the context ends. Either
// way it has set the name.
func TestLastingCreate(t *testing.T) {
	cases := map[string]struct {
		reason string
		ready  time.Duration
		cancel bool
		want   error
	}{
		"Ready": {
			reason: "A resource that is ready at once is not waited for.",
		},
		"Wait": {
			reason: "A resource that isn't is waited for.",
			ready:  10 * time.Millisecond,
		},
		"Cancelled": {
			reason: "Who waits can be stopped.",
			ready:  time.Hour,
			cancel: true,
			want:   context.Canceled,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			world := cloud.New(cloud.Options{ReadyAfter: tc.ready})
			d := database("")

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			if tc.cancel {
				world.SetHooks(cloud.Hooks{After: func(_ context.Context, c cloud.Call) error {
					if c.Op == cloud.OpCreate {
						cancel()
					}

					return nil
				}})
			}

			if _, err := connect(t, sample.NewLasting[resource.Managed](world)).Create(ctx, d); !errors.Is(err, tc.want) {
				t.Errorf("\n%s\nCreate(): want error %v, got %v", tc.reason, tc.want, err)
			}

			if want := world.Inventory()[0].ID; meta.GetExternalName(d) != want {
				t.Errorf("\n%s\nexternal name: want %q, got %q", tc.reason, want, meta.GetExternalName(d))
			}
		})
	}
}

func TestFind(t *testing.T) {
	cases := map[string]struct {
		reason string
		make   int
		hooks  cloud.Hooks
		want   asyncstate.Finding
		fails  bool
	}{
		"None": {
			reason: "This cloud shows everything at once.",
			want:   asyncstate.Absent(),
		},
		"One": {
			reason: "It is known by its owner.",
			make:   1,
			want:   asyncstate.Found("db-0001"),
		},
		"Two": {
			reason: "With two resources the result of the create is unknown.",
			make:   2,
			fails:  true,
		},
		"Error": {
			reason: "Who can't look doesn't know.",
			hooks:  cloud.Hooks{Before: func(context.Context, cloud.Call) error { return errBoom }},
			fails:  true,
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			world := cloud.New(cloud.Options{IDPrefixes: map[string]string{v1alpha1.DatabaseKind: "db"}})
			session := world.Session("")
			d := database("")

			_, err := session.Create(t.Context(), cloud.CreateRequest{Kind: "other", Owner: "another owner"})
			must(t, "Create()", err)

			for range tc.make {
				_, err := session.Create(t.Context(), cloud.CreateRequest{Kind: v1alpha1.DatabaseKind, Owner: string(d.GetUID())})
				must(t, "Create()", err)
			}

			f, ok := connect(t, sample.NewLasting[resource.Managed](world)).(asyncstate.Finder)
			if !ok {
				t.Fatal("the client is no Finder")
			}

			world.SetHooks(tc.hooks)

			got, err := f.Find(t.Context(), d, asyncstate.Attempt{})
			if diff := cmp.Diff(tc.want, got); diff != "" || tc.fails != (err != nil) {
				t.Errorf("\n%s\nFind(): error %v, -want, +got:\n%s", tc.reason, err, diff)
			}
		})
	}

	if _, ok := connect(t, sample.NewLasting[resource.Managed](cloud.New(cloud.Options{}), sample.WithCreateTokens())).(asyncstate.Finder); ok {
		t.Error("a client whose creates carry tokens needs no Finder, and is to show what it's like without")
	}
}
