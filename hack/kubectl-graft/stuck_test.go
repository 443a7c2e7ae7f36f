package main

import (
	"fmt"
	"strings"
	"testing"
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

func TestStuck_NoCrossplane(t *testing.T) {
	a := newAPI(t)
	for gv := range a.kinds {
		if strings.Contains(gv.Group, "example") {
			delete(a.kinds, gv)
		}
	}
	term := &terminal{}
	code := a.run(t, term, strings.Fields("stuck -A")...)
	want := "error: this cluster has no managed resources, composites or claims: install Crossplane and a provider, or choose another cluster with --context\n"
	if got := term.err.String(); code != exitFailed || got != want {
		t.Errorf("A cluster without Crossplane is one sentence, got exit status %d: %s", code, got)
	}
}
