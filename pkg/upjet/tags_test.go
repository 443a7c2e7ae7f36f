package upjet

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	upjetfake "github.com/crossplane/upjet/v2/pkg/resource/fake"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

type listed struct {
	tagged []Tagged
	err    error
	asked  map[string]string
}

func (l *listed) ListByTags(_ context.Context, _ Search, tags map[string]string) ([]Tagged, error) {
	l.asked = tags
	return slices.DeleteFunc(slices.Clone(l.tagged), func(t Tagged) bool {
		for k, v := range tags {
			if had, ok := t.Tags[k]; ok && had != v { // Those without have it.
				return true
			}
		}
		return false
	}), l.err
}

// namesakes is a reader of managed resources of one name, by UID.
type namesakes struct {
	client.Reader

	uids []types.UID
	err  error
}

func (n namesakes) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	list, ok := l.(*metav1.PartialObjectMetadataList)
	if !ok {
		return errors.New("lists more than metadata")
	}
	if list.GroupVersionKind().Kind != "ServerList" {
		return errors.New("lists another kind")
	}
	for _, uid := range n.uids {
		list.Items = append(
			list.Items,
			metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: uid}},
		)
	}
	return n.err
}

func TestTagFinder(t *testing.T) {
	born := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later, earlier := born.Add(time.Second), born.Add(-time.Hour)
	uid := func(uid string) map[string]string { return map[string]string{TagKeyUID: uid} }
	cases := map[string]struct {
		reason, namespace string
		parameters        map[string]any // instead of those with tags
		tagged            []Tagged
		err               error
		reader            namesakes
		found, want       string // The external name, or the error.
	}{
		"None": {reason: "nothing has the tags"},
		"OwnUID": {
			reason:    "the UID should identify the managed resource for any age and any namesakes",
			namespace: "team",
			tagged:    []Tagged{{ExternalName: "i-1", Tags: uid("u-1")}, {ExternalName: "i-0", Created: later}},
			reader:    namesakes{uids: []types.UID{"u-1", "u-2"}},
			found:     "i-1",
		},
		"OwnUIDOfAnotherConfig": {
			reason: "the managed resource was given another provider config since",
			tagged: []Tagged{
				{
					ExternalName: "i-1",
					Tags: map[string]string{
						TagKeyUID:                   "u-1",
						"crossplane-kind":           "server.example.org",
						"crossplane-name":           "web",
						"crossplane-providerconfig": "old",
					},
				},
			},
			found: "i-1",
		},
		"AnotherConfig": {
			reason: "a resource of another provider config without a UID may be a namesake's",
			tagged: []Tagged{
				{
					ExternalName: "i-1",
					Tags: map[string]string{
						"crossplane-kind":           "server.example.org",
						"crossplane-name":           "web",
						"crossplane-providerconfig": "old",
					},
					Created: later,
				},
			},
		},
		"OwnConfig": {
			reason: "a resource of the provider config should be found by its age",
			tagged: []Tagged{
				{
					ExternalName: "i-1",
					Tags: map[string]string{
						"crossplane-kind":           "server.example.org",
						"crossplane-name":           "web",
						"crossplane-providerconfig": "default",
					},
					Created: later,
				},
			},
			found: "i-1",
		},
		"AnotherUID": {
			reason: "an external resource with another UID is another's",
			tagged: []Tagged{{ExternalName: "i-1", Tags: uid("u-2"), Created: later}},
		},
		"TwoOfOwnUID": {
			reason: "a person has to choose",
			tagged: []Tagged{
				{ExternalName: "i-2", Tags: uid("u-1")},
				{ExternalName: "i-1", Tags: uid("u-1")},
			},
			want: "2 external resources have the tags of the managed resource: i-1, i-2",
		},
		"Younger": {
			reason: "created after the only managed resource that has these tags",
			tagged: []Tagged{{ExternalName: "i-1", Created: later}},
			found:  "i-1",
		},
		"Older": {
			reason: "an earlier managed resource of that name left it behind",
			tagged: []Tagged{{ExternalName: "i-1", Created: earlier}},
		},
		"OlderAndYounger": {
			reason: "the older one is out of the question",
			tagged: []Tagged{{ExternalName: "i-1", Created: earlier}, {ExternalName: "i-2", Created: later}},
			found:  "i-2",
		},
		"AsOld": {
			reason: "clocks differ: it may be older or younger",
			tagged: []Tagged{
				{ExternalName: "i-1", Created: born.Add(-time.Second)},
			},
			want: `"i-1" has the tags of the managed resource, but may be older`,
		},
		"UnknownAge": {
			reason: "a resource of an earlier managed resource with the name would look the same",
			tagged: []Tagged{
				{ExternalName: "i-1"},
			},
			want: `"i-1" has the tags of the managed resource, but may be older`,
		},
		"TwoYounger": {
			reason: "which one it is cannot be told",
			tagged: []Tagged{
				{ExternalName: "i-1", Created: later},
				{ExternalName: "i-2", Created: later},
			},
			want: "2 external resources may be the one that was created: i-1, i-2",
		},
		"Namesake": {
			reason:    "the tags say no namespace",
			namespace: "team",
			tagged:    []Tagged{{ExternalName: "i-1", Created: later}},
			reader:    namesakes{uids: []types.UID{"u-1", "u-2"}},
			want:      "external resources (1) have the tags of the managed resource, but may be those of its namesake",
		},
		"NamesakesOfTwo": {
			reason:    "a resource that another namespace may own should not be named",
			namespace: "team",
			tagged:    []Tagged{{ExternalName: "i-1", Created: later}, {ExternalName: "i-2", Created: later}},
			reader:    namesakes{uids: []types.UID{"u-1", "u-2"}},
			want:      "external resources (2) have the tags of the managed resource, but may be those of its namesake",
		},
		"NoNamesake": {
			reason:    "no other managed resource has that name",
			namespace: "team",
			tagged:    []Tagged{{ExternalName: "i-1", Created: later}},
			reader:    namesakes{uids: []types.UID{"u-1"}},
			found:     "i-1",
		},
		"CannotListNamesakes": {
			reason:    "who cannot look must not guess",
			namespace: "team",
			tagged:    []Tagged{{ExternalName: "i-1", Created: later}},
			reader:    namesakes{err: errors.New("forbidden")},
			want:      "cannot list managed resources of that name in other namespaces: forbidden",
		},
		"NoTags": {
			reason:     "a resource without tags cannot be found by them, so the answer is unknown",
			parameters: map[string]any{"size": 1},
			want:       "add a TagInitializer",
		},
		"OtherTags": {
			reason:     "nor has it if they are other tags",
			parameters: map[string]any{"tags": map[string]any{"team": "a"}},
			want:       "add a TagInitializer",
		},
		"AnotherName": {
			reason: "someone copied the tags of another managed resource",
			parameters: map[string]any{
				"tags": map[string]any{
					"crossplane-kind":           "k",
					"crossplane-name":           "db",
					"crossplane-providerconfig": "default",
				},
			},
			want: "add a TagInitializer",
		},
		"CannotList": {
			reason: "an error is no answer",
			err:    errors.New("throttled"),
			want:   "cannot list external resources by tags: throttled",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mg := upjetfake.NewTerraformed()
			mg.Kind = "Server"
			mg.SetName("web")
			mg.SetNamespace(tc.namespace)
			mg.SetUID("u-1")
			mg.SetCreationTimestamp(metav1.NewTime(born))
			l := &listed{tagged: tc.tagged, err: tc.err}
			sent := map[string]any{
				"crossplane-kind":           "server.example.org",
				"crossplane-name":           "web",
				"crossplane-providerconfig": "default",
				"team":                      "a",
			}
			want := map[string]string{"crossplane-kind": "server.example.org", "crossplane-name": "web"}
			if tc.parameters == nil {
				tc.parameters = map[string]any{"size": 1, "labels": sent}
			} else {
				want = nil
			}
			must(t, mg.SetParameters(tc.parameters))
			got, err := NewTagFinder(
				l,
				tc.reader,
			).Find(
				t.Context(),
				Search{Managed: mg, Attempt: asyncstate.Attempt{Started: later}},
			)
			finding := asyncstate.Finding{}
			switch {
			case tc.found != "":
				finding = asyncstate.Found(tc.found)
			case tc.want == "":
				finding = asyncstate.Absent()
			}
			wants(t, tc.reason, "Find()", finding, got)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n%s\nFind(): want error %q, got %v", tc.reason, tc.want, err)
			}
			wants(t, tc.reason, "tags that were asked for", want, l.asked)
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
