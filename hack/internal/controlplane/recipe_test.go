package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"
)

func TestRecipeKey(t *testing.T) {
	base := func() recipe {
		return recipe{
			dir: "/some/checkout",
			files: []file{
				{path: "etcd/go.mod", content: []byte("a")},
				{path: "etcd/go.sum", content: []byte("b")},
			},
			goVersion: "go1.26.8", goos: "linux", goarch: "amd64",
			targets: []target{{name: etcd, ldflags: "-s -w"}},
		}
	}
	cases := map[string]struct {
		reason string
		change func(*recipe)
		same   bool
	}{
		"Checkout":   {reason: "Two checkouts of the same commit share what is built.", change: func(r *recipe) { r.dir = "/other" }, same: true},
		"Nothing":    {reason: "The same recipe has the same key.", change: func(*recipe) {}, same: true},
		"Module":     {reason: "Another go.mod builds other programs.", change: func(r *recipe) { r.files[0].content = []byte("c") }},
		"Boundaries": {reason: "What moves from one file to the next is a change.", change: func(r *recipe) { r.files[0].content, r.files[1].content = []byte("ab"), nil }},
		"GoVersion":  {reason: "Another compiler makes other programs.", change: func(r *recipe) { r.goVersion = "go1.26.9" }},
		"Processor":  {reason: "A cache may be shared by processors.", change: func(r *recipe) { r.goarch = "arm64" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := base()
			tc.change(&changed)
			if diff := cmp.Diff(tc.same, changed.key() == base().key()); diff != "" {
				t.Errorf("\n%s\nsame key: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRecipe(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(t *testing.T, f *fixture)
		want   map[string]string // ldflags
		err    string
	}{
		"Versions": {
			reason: "The version that Kubernetes reports is the one that go.mod requires.",
			want: map[string]string{
				etcd:              "-s -w",
				apiServer:         "-s -w -X k8s.io/component-base/version.gitVersion=v1.35.4 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35",
				controllerManager: "-s -w -X k8s.io/component-base/version.gitVersion=v1.35.4 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35",
			},
		},
		"OutsideCheckout": {
			reason: "Elsewhere there is nothing to build from, and the error says where there is.",
			change: func(t *testing.T, f *fixture) {
				f.source.getwd = func() (string, error) { return filepath.Dir(f.checkout), nil }
			},
			err: "run this inside a checkout of Graft, or set KUBEBUILDER_ASSETS",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, buildOK)
			if tc.change != nil {
				tc.change(t, f)
			}
			r, err := f.source.recipe(context.Background())
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("\n%s\nwant an error with %q, got: %v", tc.reason, tc.err, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("\n%s\n%v", tc.reason, err)
			}
			got := make(map[string]string)
			for _, target := range r.targets {
				got[target.name] = target.ldflags
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nldflags: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// The modules in this repository and what the code says of them must agree.
func TestRecipeOfThisCheckout(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s := newFixture(t, buildOK).source
	s.getwd = os.Getwd
	r, err := s.recipe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wd, r.dir); diff != "" {
		t.Errorf("folder with the modules: -want, +got:\n%s", diff)
	}

	var want, got []string
	for _, target := range r.targets {
		want = append(want, target.module+": "+target.pkg)
	}
	for _, f := range r.files {
		if filepath.Base(f.path) != "go.mod" {
			continue
		}
		parsed, err := modfile.Parse(f.path, f.content, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range parsed.Tool {
			got = append(got, filepath.Dir(f.path)+": "+tool.Path)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tools of the modules: -targets, +go.mod:\n%s", diff)
	}
}
