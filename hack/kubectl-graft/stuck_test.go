package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
)

func TestStuck(t *testing.T) {
	a := newAPI(t, "why.yaml")
	var got strings.Builder
	for _, line := range []string{
		"stuck -A",
		"stuck",
		"stuck -A --failing -o wide",
		"stuck managed -A --older-than 24h -o json",
		"stuck buckets,databases -n team-a",
		"stuck managed,buckets -n team-a",
		"stuck buckets -n nowhere",
		"stuck bukkets",
	} {
		got.WriteString(a.result(t, line))
	}
	for _, verb := range []string{"list databases", "list namespaces", "list policies"} {
		a.forbidden[verb] = true
	}
	got.WriteString(a.result(t, "stuck managed,namespaces -A"))
	got.WriteString(a.result(t, "stuck databases"))
	got.WriteString(a.result(t, "stuck databases -A"))
	got.WriteString(a.result(t, "stuck databases,policies.s3.cloud.example.org"))
	a = newAPI(t)
	a.forbidden["describe s3.cloud.example.org/v1"] = true
	for _, line := range []string{"stuck -A", "stuck managed -A -o json", "stuck databases -A", "reservations --conflicts"} {
		got.WriteString(a.result(t, line))
	}
	golden(t, "stuck.golden", got.String())
}

// All pages of a list are read, also if many of its objects have to be read whole.
func TestStuck_Pages(t *testing.T) {
	a := newAPI(t)
	a.pageSize = 7
	for i := range 100 {
		a.add(t, fmt.Sprintf(`
apiVersion: s3.cloud.example.org/v1
kind: Bucket
metadata: {name: b-%d, namespace: team-%d, deletionTimestamp: "2026-01-02T03:00:00Z", finalizers: [x.org/hold]}
`, i, i%3))
	}
	term := &terminal{}
	code := a.run(t, term, strings.Fields("stuck -A")...)
	if got := strings.Count(term.out.String(), "WaitingForFinalizers"); got != 100 || code != exitFound {
		t.Errorf("100 objects are listed, got %d, exit status %d\n%s", got, code, term.err.String())
	}
}

// An object in conflict is listed although it is Synced and Ready: its managed fields name the condition.
func TestStuck_ConflictingWrites(t *testing.T) {
	a := newAPI(t)
	const since = `lastTransitionTime: "2026-01-02T04:00:00Z"`
	for name, status := range map[string]string{"agree": "False", "conflict": "True"} {
		a.add(t, `
apiVersion: s3.cloud.example.org/v1
kind: Bucket
metadata:
  name: `+name+`
  namespace: team-a
  managedFields:
  - manager: provider
    subresource: status
    fieldsV1: {"f:status": {"f:conditions": {'k:{"type":"ConflictingWrites"}': {"f:status": {}}}}}
status:
  conditions:
  - {type: Synced, status: "True", reason: ReconcileSuccess, lastTransitionTime: "2026-01-02T03:00:00Z"}
  - {type: Ready, status: "True", reason: Available, lastTransitionTime: "2026-01-02T03:00:00Z"}
  - {type: ConflictingWrites, status: "`+status+`", reason: ChangedBack, message: "f", `+since+`}
`)
	}
	term := &terminal{}
	code := a.run(t, term, strings.Fields("stuck -n team-a")...)
	want := []string{"team-a", "buckets.s3.cloud.example.org/conflict", "Stopped", "60m", "ChangedBack"}
	lines := strings.Split(strings.TrimSpace(term.out.String()), "\n")
	if got := strings.Fields(lines[len(lines)-1]); len(lines) != 2 || !slices.Equal(got, want) || code != exitFound {
		t.Errorf("want %q, got exit status %d: %q, %s", want, code, lines, term.err.String())
	}
}

// An interrupt while objects are read is no failure of the API server, and prints no partial list.
func TestListing_Interrupted(t *testing.T) {
	for line, path := range map[string]string{
		"stuck -A":                    "/buckets",
		"names -A -o yaml":            "/buckets",
		"reservations -A":             "/leases",
		"reservations -A --conflicts": "/buckets",
	} {
		t.Run(line, func(t *testing.T) {
			a := newAPI(t, "why.yaml")
			ctx, cancel := context.WithCancel(t.Context())
			a.onRequest = func(r *http.Request) {
				if strings.HasSuffix(r.URL.Path, path) {
					cancel()
				}
			}
			term := &terminal{}
			code := a.runWith(ctx, t, term, strings.Fields(line)...)
			if got, want := term.err.String(), "error: interrupted\n"; got != want || term.out.Len() > 0 || code != exitFailed {
				t.Errorf("exit status %d, want %q, got %q%q", code, want, term.out.String(), got)
			}
		})
	}
}

// The list is printed again when it changes, until nothing is stuck.
func TestStuck_Watch(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		line   string
		wait   func(a *api, waits int) error
		want   string
		code   int
	}{
		"Repaired": {
			reason: "The list should be printed once more for each change, and end when nothing is stuck.",
			line:   "stuck policies.s3.cloud.example.org -A --watch",
			wait: func(a *api, waits int) error {
				k := leftPolicy()
				switch waits {
				case 2:
					a.objects[k].SetFinalizers(nil)
				case 4:
					delete(a.objects, k)
				}
				return nil
			},
			want: "Deleting 26h DeletionRequested (guess)\n\nDeleting 26h (guess)\nNothing is stuck.\n",
		},
		"NothingStuck": {
			reason: "A list of nothing should end at once.",
			line:   "stuck buckets -n nowhere --watch",
			wait:   func(*api, int) error { return errors.New("waited") },
			want:   "Nothing is stuck.\n",
		},
		"Interrupted": {
			reason: "An interrupt should end it with the exit code for the objects that it has found.",
			line:   "stuck policies.s3.cloud.example.org -A --watch",
			wait:   func(*api, int) error { return errors.New("interrupted") },
			want:   "Deleting 26h DeletionRequested (guess)\n",
			code:   exitFound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, "why.yaml")
			waits := 0
			term := &terminal{wait: func() error {
				waits++
				return tc.wait(a, waits)
			}}
			code := a.run(t, term, strings.Fields(tc.line)...)
			var got strings.Builder
			for line := range strings.Lines(term.out.String()) {
				if strings.HasPrefix(line, "NAMESPACE") {
					continue
				}
				fields := strings.Fields(line)
				got.WriteString(strings.Join(fields[min(2, len(fields)):], " ") + "\n")
			}
			got.WriteString(term.err.String())
			if diff := cmp.Diff(tc.want, got.String()); diff != "" || code != tc.code {
				t.Errorf("%s\nexit status %d, -want, +got:\n%s", tc.reason, code, diff)
			}
		})
	}
}

func TestStuck_NoCrossplane(t *testing.T) {
	a := newAPI(t)
	for gv := range a.kinds {
		if strings.Contains(gv.Group, "example") {
			delete(a.kinds, gv)
		}
	}
	term := &terminal{}
	code := a.run(t, term, strings.Fields("stuck -A")...)
	want := "error: this cluster has no managed resources, composites or claims: install Crossplane and a provider, " +
		"or choose another cluster with --context\n"
	if got := term.err.String(); code != exitFailed || got != want {
		t.Errorf("A cluster without Crossplane is one sentence, got exit status %d: %s", code, got)
	}
}

// While nothing changes, the kinds that can't be read are named once.
func TestStuck_WatchForbidden(t *testing.T) {
	a := newAPI(t, "why.yaml")
	a.forbidden["list databases"] = true
	waits := 0
	term := &terminal{wait: func() error {
		if waits++; waits == 3 {
			return errors.New("interrupted")
		}
		return nil
	}}
	a.run(t, term, strings.Fields("stuck buckets,databases -A --watch")...)
	if got := term.err.String(); got != "Not read: databases.cloud.example.org (forbidden).\n" {
		t.Errorf("want the kind once, got:\n%s", got)
	}
}
