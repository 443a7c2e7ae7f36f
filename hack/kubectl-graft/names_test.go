package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	got.WriteString(a.result(t, "names --check testdata/why.yaml"))
	got.WriteString(a.result(t, "names --check testdata/none.yaml"))
	got.WriteString(a.result(t, "names buckets --check testdata/none.yaml"))
	golden(t, "names.golden", got.String())
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
