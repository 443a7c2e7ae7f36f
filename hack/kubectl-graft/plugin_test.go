package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// Each verb has a short description, and two examples or more.
func TestHelp(t *testing.T) {
	for _, c := range newCommand(&plugin{flags: genericclioptions.NewConfigFlags(false)}).Commands() {
		if n := strings.Count(c.Example, "kubectl graft "+c.Name()); n < 2 || c.Short == "" {
			t.Errorf("%s has %d examples, and says %q", c.Name(), n, c.Short)
		}
	}
}

func TestCompletion(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"Kinds": {
			reason: "Kinds of Crossplane are completed, with a slash, and no space after it.",
			args:   []string{"why", ""},
			want: []string{
				"apps.example.org/", "buckets.s3.cloud.example.org/", "databases.cloud.example.org/",
				"policies.s3.cloud.example.org/", "policies.s3.other.example.org/", "xapps.example.org/", ":6",
			},
		},
		"Names": {
			reason: "The names of the namespace are completed.",
			args:   []string{"resolve", "-n", "team-b", "bucket/"},
			want:   []string{"bucket/named", ":4"},
		},
		"Finalizers": {
			reason: "After the object its finalizers are completed.",
			args:   []string{"drop-finalizer", "-n", "team-a", "bucket/last", ""},
			want:   []string{"backup.example.org/hold", ":4"},
		},
		"NoSuchKind": {
			reason: "An unknown kind completes nothing.",
			args:   []string{"why", "bukket/"},
			want:   []string{":4"},
		},
		"Done": {
			reason: "There is nothing after the object.",
			args:   []string{"why", "bucket/last", ""},
			want:   []string{":4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, "writes.yaml")
			term := &terminal{}
			a.run(t, term, append([]string{cobra.ShellCompRequestCmd}, tc.args...)...)
			got := strings.Split(strings.TrimSpace(term.out.String()), "\n")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Colours and progress are for terminals.
func TestTerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	a := newAPI(t, "why.yaml")
	term := &terminal{outIsOne: true, slow: time.Second}
	a.run(t, term, "stuck", "-A")
	a.run(t, term, "why", "bucket/fine", "-n", "team-a")
	if got := term.err.String(); !strings.Contains(got, "of 9 kinds") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("want progress that is removed, got: %q", got)
	}
	if got, want := term.out.String(), "\x1b[1mBucket/fine\x1b[0m in team-a  \x1b[32mReady\x1b[0m"; !strings.Contains(
		got, want,
	) {
		t.Errorf("want %q in colour, got: %q", want, got)
	}
}

// Another client's writes between the steps of an orphaning.
func TestOrphan_Races(t *testing.T) {
	const (
		stopped = "error: Bucket/photos in team-a is paused and its external resource is kept, but it is not removed: "
		running = `{"version":1,"uid":"uid-of-bucket-photos","type":"update","phase":"running","attempt":1,"token":"t",` +
			`"holder":"h","started":"2026-01-02T04:30:00Z","deadline":"2026-01-02T05:30:00Z"}`
	)
	annotate := func(o *unstructured.Unstructured, key, value string) {
		annotations := o.GetAnnotations()
		annotations[key] = value
		o.SetAnnotations(annotations)
		o.SetResourceVersion(o.GetResourceVersion() + "0")
	}
	beforeSecond := func(key, value string) func(o *unstructured.Unstructured, write int) {
		return func(o *unstructured.Unstructured, write int) {
			if write == 2 {
				annotate(o, key, value)
			}
		}
	}
	const meanwhileRuns = stopped + "meanwhile its update may be in progress until 2026-01-02T05:31:00Z: wait, and " +
		"run the command again\n"
	for name, tc := range map[string]struct {
		reason string
		kept   bool // The object is paused and kept before.
		before func(o *unstructured.Unstructured, write int)
		want   string
		code   int
	}{
		"KeptChangedBefore": {
			reason: "An object that was kept before is no longer the one that was shown either.",
			kept:   true,
			before: func(o *unstructured.Unstructured, write int) {
				annotate(o, "crossplane.io/external-name", "b-9")
			},
			want: "error: Bucket/photos in team-a has changed since it was read: nothing more was written, run the " +
				"command again\n",
			code: exitFailed,
		},
		"NamedMeanwhile": {
			reason: "The external resource that stays is another one than was shown.",
			before: beforeSecond("crossplane.io/external-name", "b-9"),
			want:   stopped + "meanwhile its external name is \"b-9\": run the command again\n",
			code:   exitFailed,
		},
		"RunsMeanwhile": {
			reason: "The result of an operation would be lost.",
			before: beforeSecond("graft.crossplane.io/async-operation", running),
			want:   meanwhileRuns,
			code:   exitFailed,
		},
		"RunsBeforeRemoval": {
			reason: "The object is looked at before each write, the last one too.",
			kept:   true,
			before: beforeSecond("graft.crossplane.io/async-operation", running),
			want:   meanwhileRuns,
			code:   exitFailed,
		},
		"Conflicts": {
			reason: "A write that changes nothing that matters is only a conflict.",
			before: func(o *unstructured.Unstructured, write int) {
				if write == 2 || write == 4 {
					o.SetResourceVersion(o.GetResourceVersion() + "0")
				}
			},
			want: "Bucket/photos in team-a is removed.\n",
		},
		"PauseEnded": {
			reason: "If another client ends the pause, its provider could delete the external resource.",
			before: func(o *unstructured.Unstructured, write int) {
				if write == 2 {
					o.SetResourceVersion("77")
					o.SetAnnotations(nil)
				}
			},
			want: "error: Bucket/photos in team-a is paused and its external resource is kept, but it is not " +
				"removed: another client ended the pause, or allowed the external resource to be deleted\n",
			code: exitFailed,
		},
		"Endless": {
			reason: "A client that always writes is not waited for.",
			before: func(o *unstructured.Unstructured, write int) {
				if write > 1 {
					o.SetResourceVersion(o.GetResourceVersion() + "0")
				}
			},
			want: "error: Bucket/photos in team-a is paused and its external resource is kept, but it is not " +
				"removed: other clients write to it all the time\n",
			code: exitFailed,
		},
		"Replaced": {
			reason: "An object that takes the name is not touched.",
			before: func(o *unstructured.Unstructured, write int) {
				if write == 2 {
					o.SetUID("another")
				}
			},
			want: "Bucket/photos in team-a is removed.\n",
		},
		"ChangedBefore": {
			reason: "The object is no longer the one that was shown.",
			before: func(o *unstructured.Unstructured, write int) { o.SetResourceVersion("77") },
			want: "error: Bucket/photos in team-a has changed since it was read: nothing more was written, run the " +
				"command again\n",
			code: exitFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, "writes.yaml")
			if tc.kept {
				a.add(t, "{apiVersion: s3.cloud.example.org/v1, kind: Bucket, metadata: {name: photos, namespace: team-a, "+
					`annotations: {crossplane.io/external-name: b-3, crossplane.io/paused: "true"}, `+
					"finalizers: [finalizer.managedresource.crossplane.io]}, spec: {managementPolicies: [Observe]}}")
			}
			write := 0
			a.before = func(o *unstructured.Unstructured) {
				write++
				tc.before(o, write)
			}
			term := &terminal{}
			code := a.run(t, term, "orphan", "bucket/photos", "-n", "team-a", "--yes")
			if got := term.out.String() + term.err.String(); !strings.HasSuffix(got, tc.want) || code != tc.code {
				t.Errorf("%s want exit status %d and %q, got %d:\n%s", tc.reason, tc.code, tc.want, code, got)
			}
		})
	}
}

// An orphaning that stops after its first write prints its writes and the reason.
func TestOrphan_Stopped(t *testing.T) {
	const written = "error: Bucket/photos in team-a is paused and its external resource is kept, but it is not removed: "
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   string
	}{
		"Interrupted": {
			reason: "A user who interrupts it should read that the object is paused.",
			err:    context.Canceled,
			want:   written + "interrupted\n",
		},
		"Disconnected": {
			reason: "A user who loses the connection should read that the object is paused.",
			err:    errors.New("connection reset"),
			want: written + "cannot reach the API server (connection reset): choose another cluster with --context or " +
				"--kubeconfig, or try again\n",
		},
		"LoggedOut": {
			reason: "A user whose login expires should read that the object is paused.",
			err:    kerrors.NewUnauthorized("the token has expired"),
			want:   written + "the API server does not accept your credentials: log in again\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, term := newAPI(t, "writes.yaml"), &terminal{}
			a.fails = func(r *http.Request) error {
				if r.Method != http.MethodDelete {
					return nil
				}
				return tc.err
			}
			code := a.run(t, term, "orphan", "bucket/photos", "-n", "team-a", "--yes")
			if got := term.err.String(); got != tc.want || code != exitFailed || len(a.writes) != 1 {
				t.Errorf("%s\nwant exit status %d and %q, got %d and %q after the requests %q", tc.reason, exitFailed, tc.want,
					code, got, a.writes)
			}
		})
	}
}

// The same objects are always shown in the same order.
func TestOutput_Deterministic(t *testing.T) {
	kinds := []string{"ProviderConfigUsage", "ClusterProviderConfigUsage", "LegacyProviderConfigUsage"}
	for name, tc := range map[string]struct {
		line      string
		forbidden []string
	}{
		"Users":   {line: "why providerconfig/account -n team-a"},
		"NotRead": {line: "stuck -A", forbidden: []string{"get buckets", "get databases", "get policies", "get xapps"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := ""
			for range 20 {
				a := newAPI(t, "why.yaml")
				for gv := range a.kinds {
					if gv.Group != "cloud.example.org" {
						continue
					}
					for _, kind := range kinds[1:] {
						a.kinds[gv] = append(a.kinds[gv], resourceOf(kind, strings.ToLower(kind)+"s", true))
					}
				}
				for _, kind := range kinds {
					a.add(t, "{apiVersion: cloud.example.org/v1, kind: "+kind+", metadata: {name: u, namespace: team-a}, "+
						"providerConfigRef: {name: account}, "+
						"resourceRef: {apiVersion: s3.cloud.example.org/v1, kind: Bucket, name: by-"+strings.ToLower(kind)+"}}")
					a.add(t, "{apiVersion: s3.cloud.example.org/v1, kind: Bucket, metadata: {namespace: team-a, name: by-"+
						strings.ToLower(kind)+`, deletionTimestamp: "2026-01-02T04:59:00Z"}}`)
				}
				for _, verb := range tc.forbidden {
					a.forbidden[verb] = true
				}
				got := a.result(t, tc.line)
				if want != "" && got != want {
					t.Fatalf("%s was different before:\n%s\nafter:\n%s", tc.line, want, got)
				}
				want = got
			}
		})
	}
}

// A template is enough to choose the format, as in kubectl.
func TestTemplate(t *testing.T) {
	term := &terminal{}
	code := newAPI(t).run(t, term, "version", "--client", "--template", "{{.plugin}}")
	if got := term.out.String(); got != "v0.24.0" || code != exitDone {
		t.Errorf("exit status %d, got %q %s", code, got, term.err.String())
	}
}
