//go:build integration

package integration

import (
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
)

// A provider that learns external names after Create has returned keeps them
// whatever the policies, across restarts: unchanged, and with its operations known
// to a tracker. The objects go through each of the sets of policies that upstream
// supports and that allow to create.
func TestNamesAreKept(t *testing.T) {
	policies := sample.CreatingPolicies()

	cases := []struct {
		name string
		with func(w *cloud.Cloud) (flavour, connectors)
	}{
		{name: "Unchanged", with: func(w *cloud.Cloud) (flavour, connectors) { return graft, asyncConnectors(w) }},
		{name: "BeginEnd", with: func(w *cloud.Cloud) (flavour, connectors) { return graftTracked(w), connectors{wait: func() {}} }},
	}

	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s, w := newServer(t), cloud.New(cloud.Options{RequestLatency: 10 * time.Millisecond})

			all := fleet("kept", len(policies))
			for i, mg := range all {
				mg.SetManagementPolicies(policies[i/2])
			}

			s.create(t, all...)

			process := func(request string) {
				f, c := tc.with(w)
				p := start(t, f, setup{connectors: c, poll: time.Second})

				s.annotate(t, meta.AnnotationKeyReconcileRequestedAt, request, all...)
				s.until(t, "all were reconciled by this process", all, func(mg sample.Instance) bool {
					return isAvailable(mg) && lastHandled(t, mg) == request
				})
				p.stop()
			}

			process("first")

			owners := idsByOwner(w)

			for range 2 {
				process(time.Now().String())
			}

			for uid, mg := range s.list(t.Context(), t) {
				if owners[uid] == "" || externalName(mg) != owners[uid] {
					t.Errorf("%T %s with %v: want external name %q, got %q", mg, mg.GetName(), mg.GetManagementPolicies(), owners[uid], externalName(mg))
				}

				if st := w.Stats(string(uid)); st.Created != 1 {
					t.Errorf("%T %s with %v: want one external resource ever, got %+v", mg, mg.GetName(), mg.GetManagementPolicies(), st)
				}
			}
		})
	}
}
