package main

import (
	"strings"
	"testing"

	"github.com/pkg/errors"
)

// The advice repairs the object that it is about.
func TestWhy_Advice(t *testing.T) {
	const deleted = `deletionTimestamp: "2026-01-02T04:59:00Z", finalizers: [finalizer.managedresource.crossplane.io]`
	for name, tc := range map[string]struct {
		reason   string
		metadata string
		status   string
		flags    string
		want     string
		not      string
	}{
		"EarlierOperation": {
			reason: "The token of an earlier operation should not be searched for.",
			metadata: `annotations: {crossplane.io/external-create-pending: "2026-01-02T04:00:00Z",
			graft.crossplane.io/async-operation: '{"version":1,"uid":"uid-of-database-a","type":"delete","phase":"failed","token":"t-1","started":"2026-01-02T03:00:00Z","pending":"2026-01-02T02:00:00Z"}'}`,
			want: "in the external system: created after 2026-01-02T04:00:00Z. If it exists",
			not:  "with the token",
		},
		"OwnOperation": {
			reason: "The token of the create itself should be searched for.",
			metadata: `annotations: {crossplane.io/external-create-pending: "2026-01-02T03:00:00Z",
			graft.crossplane.io/async-operation: '{"version":1,"uid":"uid-of-database-a","type":"create","phase":"unknown","token":"t-1","started":"2026-01-02T03:00:00Z","pending":"2026-01-02T03:00:00Z"}'}`,
			want: "created after 2026-01-02T03:00:00Z, with the token t-1. If it exists",
			not:  "--unpause",
		},
		"PauseEnded": {
			reason:   "A pause that has ended should not be ended again.",
			metadata: "annotations: {}",
			status:   `{type: Synced, status: "False", reason: ReconcilePaused, message: "Reconciliation is paused"}`,
			want:     "note: The pause has ended since that was reported.",
			not:      "--unpause",
		},
		"Events": {
			reason:   "The events of a cluster-scoped object are in the namespace default.",
			metadata: deleted,
			status:   `{type: Deleting, status: "True", reason: ForceOrphaned, message: "As Graft says."}`,
			want:     "$ kubectl events --for databases.cloud.example.org/a -n default\n",
			not:      "drop-finalizer",
		},
		"Cluster": {
			reason:   "The command should go to the cluster that the flags choose, as the same user.",
			metadata: deleted + `, annotations: {crossplane.io/paused: "true"}`,
			flags:    " --context prod --cluster fake --server http://fake/ --as root",
			want: "reconcile databases.cloud.example.org/a --context prod --cluster fake --server http://fake/ " +
				"--as root --unpause\n",
			not: "-n ",
		},
		"Direction": {
			reason:   "A message should not reverse the text after it.",
			metadata: "annotations: {}",
			status:   "{type: Ready, status: \"False\", reason: Creating, message: \"wait\u202ehguone\"}",
			want:     "  wait hguone\n",
			not:      "\u202e",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.add(t, "apiVersion: cloud.example.org/v1\nkind: Database\nmetadata: {name: a, "+tc.metadata+"}\n"+
				"status: {conditions: ["+tc.status+"]}")
			got := a.result(t, "why database/a"+tc.flags)
			if !strings.Contains(got, tc.want) || strings.Contains(got, tc.not) {
				t.Errorf("%s want %q and not %q, got:\n%s", tc.reason, tc.want, tc.not, got)
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

// The command that pauses the composite works on a pause that was ended with a value.
func TestOrphan_PausedFalse(t *testing.T) {
	a := newAPI(t)
	a.add(t, `{apiVersion: example.org/v1, kind: XApp, metadata: {name: shop, annotations: {crossplane.io/paused: "false"}}}`)
	a.add(t, "{apiVersion: cloud.example.org/v1, kind: Database, metadata: {name: a, "+
		"finalizers: [finalizer.managedresource.crossplane.io], ownerReferences: "+
		"[{apiVersion: example.org/v1, kind: XApp, name: shop, uid: uid-of-xapp-shop, controller: true}]}}")
	got := a.result(t, "orphan database/a")
	if want := "kubectl annotate xapps.example.org/shop --overwrite crossplane.io/paused=true\n"; !strings.Contains(got, want) {
		t.Errorf("want %q, got:\n%s", want, got)
	}
}
