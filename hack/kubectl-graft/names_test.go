package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNames(t *testing.T) {
	a := newAPI(t, "names.yaml")
	var got strings.Builder
	for _, line := range []string{"names -A", "names", "names databases -o yaml", "names nothings"} {
		got.WriteString(a.result(t, line))
	}

	// A backup of all, after which a name is lost, one changes, and an object goes.
	term := &terminal{}
	a.run(t, term, strings.Fields("names -A -o json")...)
	backup := filepath.Join(t.TempDir(), "names.json")
	if err := os.WriteFile(backup, term.out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(line string) {
		got.WriteString(strings.ReplaceAll(a.result(t, line+" --check "+backup), backup, "names.json"))
	}
	check("names")
	b := newAPI(t)
	b.add(t,
		"{apiVersion: s3.cloud.example.org/v1, kind: Bucket, metadata: {name: a, namespace: team-a, uid: restored, "+
			"annotations: {crossplane.io/external-name: b-9}}}")
	b.add(t, "{apiVersion: s3.cloud.example.org/v1, kind: Bucket, metadata: {name: b, namespace: team-a}}")
	b.add(t, "{apiVersion: cloud.example.org/v1, kind: Database, metadata: {name: d}}")
	a = b
	check("names")
	check("names --context prod -o json")
	a.forbidden["list buckets"] = true
	check("names")
	got.WriteString(a.result(t, "names -A"))
	got.WriteString(a.result(t, "names -A -o yaml"))
	got.WriteString(a.result(t, "names --check testdata/why.yaml"))
	got.WriteString(a.result(t, "names --check testdata/none.yaml"))
	got.WriteString(a.result(t, "names buckets --check testdata/none.yaml"))
	golden(t, "names.golden", got.String())
}

// A name is stored again only if no other managed resource acts on the external resource then.
func TestNames_Advice(t *testing.T) {
	const (
		backup = "apiVersion: cli.graft.crossplane.io/v1alpha1\nkind: ExternalNameList\nitems:\n" +
			"- {apiVersion: s3.cloud.example.org/v1, kind: Bucket, namespace: team-a, name: a, uid: u, externalName: b-1}\n"
		bucket   = "apiVersion: s3.cloud.example.org/v1\nkind: Bucket\nmetadata: "
		annotate = "$ kubectl annotate"
		why      = "$ kubectl graft why buckets.s3.cloud.example.org/a -n team-a\n"
	)
	for name, tc := range map[string]struct {
		reason     string
		backup     string // Further lines.
		objects    []string
		undescribe bool
		want       string
		not        string
		code       int
	}{
		"Lost": {
			reason:  "A name that no other managed resource has should be stored again.",
			objects: []string{bucket + "{namespace: team-a, name: a, uid: u}"},
			want: "Store it again. Make sure that no managed resource of another namespace has that name.\n    $ kubectl " +
				"annotate buckets.s3.cloud.example.org/a -n team-a --overwrite crossplane.io/external-name=b-1\n",
			not:  "in the backup.",
			code: exitFound,
		},
		"Held": {
			reason: "A name that another managed resource has now should not be stored again.",
			objects: []string{
				bucket + "{namespace: team-a, name: a, uid: u}",
				bucket + "{namespace: team-a, name: b, annotations: {crossplane.io/external-name: b-1}}",
			},
			want: "Bucket/b in team-a has that external name, now or in the backup.",
			not:  annotate,
			code: exitFound,
		},
		"HeldAndMissing": {
			reason:  "An object should not be created again with the name that another managed resource has.",
			objects: []string{bucket + "{namespace: team-a, name: b, annotations: {crossplane.io/external-name: b-1}}"},
			want:    "Missing Bucket/a in team-a: \"b-1\"\n  to do: Bucket/b in team-a has that external name",
			not:     "create it",
			code:    exitFound,
		},
		"LostTwice": {
			reason: "A name that two managed resources have lost should not be stored in both.",
			backup: "- {apiVersion: s3.cloud.example.org/v1, kind: Bucket, namespace: team-a, name: b, externalName: b-1}\n",
			objects: []string{
				bucket + "{namespace: team-a, name: a, uid: u}", bucket + "{namespace: team-a, name: b}",
			},
			want: "Bucket/a in team-a has that external name, now or in the backup.",
			not:  annotate,
			code: exitFound,
		},
		"OfAnotherKind": {
			reason: "Kinds have their own external names.",
			backup: "- {apiVersion: s3.cloud.example.org/v1, kind: Policy, namespace: team-a, name: b, externalName: b-1}\n",
			objects: []string{
				bucket + "{namespace: team-a, name: a, uid: u}",
				"{apiVersion: s3.cloud.example.org/v1, kind: Policy, metadata: {namespace: team-a, name: b, annotations: " +
					"{crossplane.io/external-name: b-1}}}",
			},
			want: annotate,
			not:  "in the backup.",
			code: exitFound,
		},
		"Replaced": {
			reason:  "Another object of the same name may have an external resource of its own.",
			objects: []string{bucket + "{namespace: team-a, name: a, annotations: {crossplane.io/external-name: b-2}}"},
			want:    "It is another object than in the backup",
			not:     annotate,
			code:    exitFound,
		},
		"Announced": {
			reason: "A name should not be stored while a create may be in progress.",
			objects: []string{bucket + "{namespace: team-a, name: a, uid: u, annotations: " +
				`{crossplane.io/external-create-pending: "2026-01-02T04:59:00Z"}}`},
			want: why,
			not:  annotate,
			code: exitFound,
		},
		"Failed": {
			reason: "A name should not be stored while a create that failed may have made another external resource.",
			objects: []string{bucket + "{namespace: team-a, name: a, uid: u, annotations: " +
				`{crossplane.io/external-create-pending: "2026-01-02T04:00:00Z", ` +
				`crossplane.io/external-create-failed: "2026-01-02T04:00:01Z"}}`},
			want: why,
			not:  annotate,
			code: exitFound,
		},
		"Running": {
			reason: "A name should not be stored while an operation may be in progress.",
			objects: []string{bucket + "{namespace: team-a, name: a, uid: u, annotations: " +
				`{graft.crossplane.io/async-operation: '{"version":1,"uid":"u","type":"create","phase":"running",` +
				`"attempt":1,"token":"t","holder":"h","started":"2026-01-02T04:00:00Z","deadline":"2026-01-02T06:00:00Z"}'}}`},
			want: why,
			not:  annotate,
			code: exitFound,
		},
		"Tab": {
			reason: "The command should store the name of the backup, byte for byte.",
			backup: "- {apiVersion: s3.cloud.example.org/v1, kind: Bucket, namespace: team-a, name: c, " +
				`externalName: "b\t1\u202e'"}` + "\n",
			objects: []string{bucket + "{namespace: team-a, name: c}"},
			want:    `--overwrite $'crossplane.io/external-name=b\x091\xe2\x80\xae\''` + "\n",
			not:     "\t",
			code:    exitFound,
		},
		"ControlCharacters": {
			reason:  "A kind that the backup names can't act on the terminal.",
			backup:  `unread: ["a\e[2Jb"]`,
			objects: []string{bucket + "{namespace: team-a, name: a, uid: u, annotations: {crossplane.io/external-name: b-1}}"},
			want:    "Not read: a [2Jb (it could not be read for the backup).\n",
			not:     "\x1b",
			code:    exitFailed,
		},
		"Undescribed": {
			reason:     "An object whose kind could not be discovered may exist.",
			undescribe: true,
			want:       "Not read: bucket.s3.cloud.example.org (the API server cannot describe the group s3.cloud.example.org).",
			not:        "Missing",
			code:       exitFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, term := newAPI(t), &terminal{types: backup + tc.backup}
			a.forbidden["describe s3.cloud.example.org/v1"] = tc.undescribe
			for _, o := range tc.objects {
				a.add(t, o)
			}
			code := a.run(t, term, "names", "--check", "-")
			got := term.out.String() + term.err.String()
			if !strings.Contains(got, tc.want) || strings.Contains(got, tc.not) || code != tc.code {
				t.Errorf("%s\nwant exit status %d, %q and not %q, got %d:\n%s", tc.reason, tc.code, tc.want, tc.not, code, got)
			}
		})
	}
}

// A backup lists the kinds that it lacks. A check can't say whether their names are lost.
func TestNames_PartialBackup(t *testing.T) {
	const missing = "Not read: databases.cloud.example.org (it could not be read for the backup).\n"
	for name, tc := range map[string]struct {
		reason    string
		line      string
		forbidden string // For the backup.
		still     string // For the check.
		want      string
		code      int
	}{
		"All": {
			reason: "The check should fail if the backup of all namespaces lacks a kind.",
			line:   "names -A -o yaml", forbidden: "list databases",
			want: missing + "0 of 4 names of the backup are lost, changed or missing.\nerror: not all could be read\n",
			code: exitFailed,
		},
		"AllAgain": {
			reason: "The check should name a kind once if it is neither in the backup nor readable.",
			line:   "names -A -o json", forbidden: "list databases", still: "list databases",
			want: "Not read: databases.cloud.example.org (forbidden).\n" +
				"0 of 4 names of the backup are lost, changed or missing.\nerror: not all could be read\n",
			code: exitFailed,
		},
		"Undescribed": {
			reason: "The check should fail if a group was not described when the backup was written.",
			line:   "names -A -o json", forbidden: "describe s3.cloud.example.org/v1",
			want: "Not read: *.s3.cloud.example.org (it could not be read for the backup).\n" +
				"0 of 1 names of the backup are lost, changed or missing.\nerror: not all could be read\n",
			code: exitFailed,
		},
		"OneNamespace": {
			reason: "A user of one namespace should not need the cluster-scoped kinds.",
			line:   "names -n team-a -o yaml", forbidden: "list databases", still: "list databases",
			want: "Not read: databases.cloud.example.org (forbidden).\n" +
				"0 of 3 names of the backup are lost, changed or missing.\n",
		},
		"OneNamespaceAllowed": {
			reason: "The check should fail for a user who may read a kind that the backup lacks.",
			line:   "names -n team-a -o yaml", forbidden: "list databases",
			want: missing + "0 of 3 names of the backup are lost, changed or missing.\nerror: not all could be read\n",
			code: exitFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, backup := newAPI(t, "names.yaml"), &terminal{}
			a.forbidden[tc.forbidden] = true
			a.run(t, backup, strings.Fields(tc.line)...)
			a.forbidden = map[string]bool{tc.still: true}
			term := &terminal{types: backup.out.String()}
			code := a.run(t, term, "names", "--check", "-")
			if got := term.out.String() + term.err.String(); got != tc.want || code != tc.code {
				t.Errorf("%s\nwant exit status %d and %q, got %d:\n%s", tc.reason, tc.code, tc.want, code, got)
			}
		})
	}
}

// A backup of one namespace is checked by a user who may read no other.
func TestNames_OneNamespace(t *testing.T) {
	a := newAPI(t, "names.yaml")
	term := &terminal{}
	a.run(t, term, strings.Fields("names buckets -n team-b -o yaml")...)
	term = &terminal{types: term.out.String()}
	if code := a.run(t, term, strings.Fields("names --check -")...); code != exitDone {
		t.Errorf("Nothing is lost, got exit status %d: %s", code, term.err.String())
	}
}

// An empty backup has no namespace.
func TestNames_EmptyBackup(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		line   string
		want   int
	}{
		"OneNamespace": {"A user of one namespace should not need the cluster-scoped kinds.", "-n team-a", exitDone},
		"All":          {"The check of all namespaces should fail if it can't read a kind.", "-A", exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			a, backup := newAPI(t), &terminal{}
			a.forbidden["list databases"] = true
			a.run(t, backup, strings.Fields("names -o yaml "+tc.line)...)
			term := &terminal{types: backup.out.String()}
			got := a.run(t, term, strings.Fields("names --check - "+tc.line)...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want exit status, +got:\n%s\n%s", tc.reason, diff, term.err.String())
			}
		})
	}
}

func TestReservations(t *testing.T) {
	a := newAPI(t, "names.yaml")
	var got strings.Builder
	for _, line := range []string{
		"reservations -A",
		"reservations -A -o wide",
		"reservations -n crossplane-system -o jsonpath={.items[0].holder.name}",
		"reservations",
		"reservations --conflicts -A",
		"reservations --conflicts -n team-b",
		"reservations --conflicts -A -o jsonpath={.items[0].object.name}",
	} {
		got.WriteString(a.result(t, line))
	}
	a.forbidden["list buckets"] = true
	got.WriteString(a.result(t, "reservations -A"))
	got.WriteString(a.result(t, "reservations -A --conflicts"))
	golden(t, "reservations.golden", got.String())
}

func TestVersion(t *testing.T) {
	a := newAPI(t)
	got := a.result(t, "version") + a.result(t, "version --client -o yaml")
	golden(t, "version.golden", got)
}

// Leases that can't be read are no proof that no name is reserved.
func TestReservations_Forbidden(t *testing.T) {
	a := newAPI(t)
	a.forbidden["list leases"] = true
	term := &terminal{}
	code := a.run(t, term, "reservations", "-A")
	want := "Not read: leases.coordination.k8s.io (forbidden).\nerror: not all could be read\n"
	if got := term.err.String(); got != want || code != exitFailed {
		t.Errorf("exit status %d, want %q, got %q", code, want, got)
	}
}
