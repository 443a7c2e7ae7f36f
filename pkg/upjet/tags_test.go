package upjet

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	upjetfake "github.com/crossplane/upjet/v2/pkg/resource/fake"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// listed are the names of external resources with the tag of u-1.
type listed struct {
	names []string
	err   error
	asked map[string]string
}

func (l *listed) ListByTag(_ context.Context, _ Search, key, value string) ([]string, error) {
	l.asked = map[string]string{key: value}
	return l.names, l.err
}

func TestTagFinder(t *testing.T) {
	tagged := func(uid string) map[string]any {
		return map[string]any{"tags": map[string]any{TagKeyUID: uid, "team": "a"}}
	}
	cases := map[string]struct {
		reason     string
		parameters map[string]any
		names      []string
		err        error
		want       asyncstate.Finding
		wantErr    string
		notAsked   bool
	}{
		"None": {reason: "Nothing has the tag.", parameters: tagged("u-1"), want: asyncstate.Absent()},
		"One": {
			reason: "The UID should identify the external resource.", parameters: tagged("u-1"),
			names: []string{"i-1"}, want: asyncstate.Found("i-1"),
		},
		"Two": {
			reason: "A person has to choose.", parameters: tagged("u-1"), names: []string{"i-2", "i-1"},
			wantErr: "2 external resources have the tag of the managed resource: i-1, i-2",
		},
		"CannotList": {
			reason: "An error is no answer.", parameters: tagged("u-1"), err: errors.New("throttled"),
			wantErr: "cannot list external resources by tag: throttled",
		},
		"NoTags": {
			reason:     "A resource without tags cannot be found by them, so the answer is unknown.",
			parameters: map[string]any{"size": 1}, wantErr: "add graft's TagInitializer", notAsked: true,
		},
		"AnotherUID": {
			reason:     "The tags were copied from another managed resource, or are of a restored one.",
			parameters: tagged("u-2"), wantErr: "add graft's TagInitializer", notAsked: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mg := upjetfake.NewTerraformed()
			mg.SetUID("u-1")
			must(t, mg.SetParameters(maps.Clone(tc.parameters)))
			l := &listed{names: tc.names, err: tc.err}
			got, err := NewTagFinder(l).Find(t.Context(), Search{Managed: mg})
			wants(t, tc.reason, "Find()", tc.want, got)
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("\n%s\nFind(): want error %q, got %v", tc.reason, tc.wantErr, err)
			}
			wants(t, tc.reason, "asked", !tc.notAsked, l.asked[TagKeyUID] == "u-1")
		})
	}
}

func TestMayTag(t *testing.T) {
	now := time.Now()
	cases := map[string]struct {
		reason string
		mod    func(mg *upjetfake.Terraformed)
		want   bool
	}{
		"New": {reason: "The first create should send the tag.", mod: func(*upjetfake.Terraformed) {}, want: true},
		"Created": {
			reason: "A later create should send the tag.", want: true,
			mod: func(mg *upjetfake.Terraformed) {
				meta.SetExternalCreatePending(mg, now.Add(-time.Minute))
				meta.SetExternalCreateSucceeded(mg, now)
			},
		},
		"Pending": {
			reason: "The tag would say that an interrupted create without it has created nothing.",
			mod:    func(mg *upjetfake.Terraformed) { meta.SetExternalCreatePending(mg, now) },
		},
		"Failed": {
			reason: "A create may fail after it has created something.",
			mod: func(mg *upjetfake.Terraformed) {
				meta.SetExternalCreatePending(mg, now.Add(-time.Minute))
				meta.SetExternalCreateFailed(mg, now)
			},
		},
		"OnlyObserved": {
			reason: "Spec is not the provider's to change.",
			mod: func(mg *upjetfake.Terraformed) {
				mg.SetManagementPolicies(append(mg.GetManagementPolicies(), "Observe"))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mg := upjetfake.NewTerraformed()
			tc.mod(mg)
			wants(t, tc.reason, "mayTag()", tc.want, mayTag(mg))
		})
	}
}

func wants(t *testing.T, reason, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("\n%s\n%s: -want, +got:\n%s", reason, what, diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
