package main

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const source = `package demo

import "time"

// Long reports whether d is longer than a second. Its limit has no test.
func Long(d time.Duration) bool {
	return d > time.Second
}

// Both reports whether a and b are true.
func Both(a, b bool) bool {
	return a && b
}
`

const sourceTest = `package demo

import (
	"testing"
	"time"
)

func TestLong(t *testing.T) {
	if !Long(time.Minute) || Long(time.Millisecond) {
		t.Error("Long")
	}
}

func TestBoth(t *testing.T) {
	if !Both(true, true) || Both(true, false) || Both(false, true) {
		t.Error("Both")
	}
}
`

func TestRun(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "go-mutesting")
	cmd := exec.Command("go", "build", "-o", tool, "github.com/zimmski/go-mutesting/cmd/go-mutesting")
	cmd.Dir = filepath.Join("..", "tools")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cases := map[string]struct {
		reason string
		files  map[string]string
		also   string
		want   string
		err    string
	}{
		"Survivor": {
			reason: "The mutant that no test notices is printed, and the others are counted.",
			want: `./demo: 3 mutants, sample of 3, seed 1
survived demo/demo.go:7
  - return d > time.Second
  + return d >= time.Second
killed 2 of 3 (2 by the tests of ./demo), survived 1; 0 more don't compile
`,
		},
		"OtherPackage": {
			reason: "The tests of a further package should count for mutants that survive the package's own.",
			also:   "./user",
			files: map[string]string{
				"user/user_test.go": `package user

import (
	"testing"
	"time"

	"example.org/m/demo"
)

func TestLimit(t *testing.T) {
	if demo.Long(time.Second) {
		t.Error("Long")
	}
}
`,
			},
			want: `./demo: 3 mutants, sample of 3, seed 1
killed 3 of 3 (2 by the tests of ./demo, 1 by the tests of ./user), survived 0; 0 more don't compile
`,
		},
		"FailsAnyway": {
			reason: "Tests that fail without a mutant are an error, as they would kill each mutant.",
			files: map[string]string{
				"demo/demo_test.go": strings.ReplaceAll(sourceTest, "time.Millisecond", "time.Hour"),
			},
			err: "the tests of ./demo fail without a mutant",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{
				"go.mod":            "module example.org/m\n\ngo 1.25\n",
				"demo/demo.go":      source,
				"demo/demo_test.go": sourceTest,
			}
			maps.Copy(files, tc.files)
			for name, content := range files {
				path := filepath.Join(dir, name)
				if err := errors.Join(
					os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(content), 0o600),
				); err != nil {
					t.Fatal(err)
				}
			}
			var got bytes.Buffer
			err := run(t.Context(), options{
				root:     dir,
				pkg:      "./demo",
				also:     tc.also,
				tool:     tool,
				n:        10,
				seed:     1,
				parallel: 1,
				timeout:  time.Minute,
			}, &got)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("\n%s\nrun(...): want error %q, got %v", tc.reason, tc.err, err)
			}
			if diff := cmp.Diff(tc.want, got.String()); diff != "" {
				t.Errorf("\n%s\nrun(...): -want, +got:\n%s", tc.reason, diff)
			}
			if content, err := os.ReadFile(filepath.Join(dir, "demo", "demo.go")); err != nil ||
				string(content) != source {
				t.Errorf("\n%s\nrun(...) changed the source: %s (%v)", tc.reason, content, err)
			}
		})
	}
}

// Scores can be compared if a seed gives the same sample, a larger one begins with it, and
// a change of the source changes little of it.
func TestSample(t *testing.T) {
	var all []*mutant
	for i := range 50 {
		all = append(all, &mutant{line: i, was: strconv.Itoa(i / 2)})
	}
	small, large := sample(all, 20, 7), sample(all, 51, 7)
	if len(large) != 50 || !slices.Equal(small, large[:20]) || slices.Equal(small, all[:20]) ||
		slices.Equal(small, sample(all, 20, 8)) {
		t.Errorf("sample(): got %v, and %v", small, large)
	}
	left := slices.DeleteFunc(slices.Clone(small), func(m *mutant) bool { return m == all[0] || m == all[1] })
	if got := sample(all[2:], 20, 7); !slices.Equal(left, got[:len(left)]) {
		t.Errorf("sample() without two: got %v, want %v first", got, left)
	}
}
