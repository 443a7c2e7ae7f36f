package main

import (
	"strings"
	"testing"
)

// What objects tell without Graft.
func TestWhy_Upstream(t *testing.T) {
	a := newAPI(t)
	var got strings.Builder
	const (
		deleted, own = `deletionTimestamp: "2026-01-02T04:59:00Z"`, "finalizer.managedresource.crossplane.io"
		available    = `{conditions: [{type: Ready, status: "True", reason: Available}]}`
	)
	for _, o := range []struct{ name, metadata, spec, status string }{
		{
			name:     "paused",
			metadata: deleted + ", finalizers: [" + own + `], annotations: {crossplane.io/paused: "true"}`,
		},
		{name: "no-policies", metadata: deleted + ", finalizers: [" + own + "]", spec: "{managementPolicies: []}"},
		{
			name:     "unknown",
			metadata: deleted + ", finalizers: [" + own + `], annotations: {crossplane.io/external-create-pending: "2026-01-02T04:00:00Z"}`,
		},
		{name: "held", metadata: deleted + ", finalizers: [" + own + ", backup.example.org/hold]"},
		{
			name:     "fails",
			metadata: deleted + ", finalizers: [" + own + "]",
			status:   `{conditions: [{type: Synced, status: "False", reason: ReconcileError, message: "cannot delete: in use", lastTransitionTime: "2026-01-02T04:59:30Z"}]}`,
		},
		{name: "collects", metadata: deleted + ", finalizers: [foregroundDeletion]"},
		{name: "orphans", metadata: deleted + `, finalizers: [orphan], annotations: {crossplane.io/paused: "true"}`},
		{name: "silent", metadata: deleted + ", finalizers: [" + own + "]"},
		{name: "unheld", metadata: deleted},
		{
			name:     "still-creating",
			metadata: deleted + ", finalizers: [" + own + `], annotations: {crossplane.io/external-create-pending: "2026-01-02T04:58:50Z"}`,
		},
		{
			name:     "creating-again",
			metadata: `annotations: {crossplane.io/external-create-pending: "2026-01-02T04:59:20Z"}`,
			status: `{conditions: [{type: Synced,
			status: "False", reason: ReconcileError, message: cannot determine creation result, lastTransitionTime: "2026-01-02T04:30:00Z"}]}`,
		},
		{
			name:     "create-interrupted",
			metadata: `annotations: {crossplane.io/external-create-pending: "2026-01-02T04:59:20Z"}`,
			status: `{conditions: [{type: Synced,
			status: "False", reason: ReconcileError, message: cannot determine creation result, lastTransitionTime: "2026-01-02T04:59:30Z"}]}`,
		},
		{name: "guarded", metadata: deleted + ", finalizers: [" + own + ", kubernetes.io/pv-protection]"},
		{name: "another", metadata: deleted + ", finalizers: [kubernetes.io/pv-protection]"},
		{
			name:     "alive-paused",
			metadata: `annotations: {crossplane.io/paused: "true"}`, spec: "{managementPolicies: []}",
		},
		{
			name: "not-ready",
			status: `{conditions: [{type: Ready,
			status: Unknown, reason: Starting, lastTransitionTime: "2026-01-02T04:59:30Z"}]}`,
		},
		{
			name: "unhealthy",
			status: `{conditions: [{type: Healthy,
			status: "False", reason: UnhealthyPackageRevision, lastTransitionTime: "2026-01-02T04:59:30Z"}]}`,
		},
		{name: "in-use", metadata: `labels: {crossplane.io/in-use: "true"}`, status: available},

		// Conditions that are no longer true.
		{
			name:     "no-longer-paused",
			metadata: deleted + ", finalizers: [" + own + "]", status: reported("BlockedByPause"),
		},
		{
			name:     "no-longer-held",
			metadata: deleted + ", finalizers: [" + own + "]", status: reported("WaitingForFinalizers"),
		},

		// Conditions that are still true: a finalizer besides the provider's is left.
		{
			name:     "still-collected",
			metadata: deleted + ", finalizers: [" + own + ", foregroundDeletion]",
			status:   reported("WaitingForFinalizers"),
		},
		{
			name:     "still-referred",
			metadata: deleted + ", finalizers: [" + own + ", kubernetes.crossplane.io/referred-by-object-u1]",
			status:   reported("WaitingForFinalizers"),
		},
		{
			name:     "referred",
			metadata: deleted + ", finalizers: [" + own + ", kubernetes.crossplane.io/referred-by-object-u1]",
		},

		// Further conditions that are no longer true.
		{name: "settled", metadata: deleted + ", finalizers: [" + own + "]", status: reported("CreateResultUnknown")},
		{
			name:     "paused-since",
			metadata: deleted + ", finalizers: [" + own + `], annotations: {crossplane.io/paused: "true"}`,
			status:   reported("ExternalDeleteFailed"),
		},
		{
			name:   "restored",
			status: strings.TrimSuffix(reported("ExternalDeleteFailed"), "]}") + `, {type: Ready, status: "True"}]}`,
		},
		{
			name: "created-since",
			status: `{conditions: [{type: Synced,
			status: "False", reason: ReconcileError, message: cannot determine creation result, lastTransitionTime: "2026-01-02T04:59:30Z"}]}`,
		},
		{
			name: "resolved-since",
			status: `{conditions: [{type: CreateResolved,
			status: "False", reason: FindFailed, lastTransitionTime: "2026-01-02T04:59:30Z"}]}`,
		},
		{
			name:     "refused-and-observed",
			metadata: `annotations: {graft.crossplane.io/create-refused: a, crossplane.io/external-name: a}`,
			spec:     "{managementPolicies: [Observe]}",
			status:   `{conditions: [{type: Synced, status: "True"}, {type: Ready, status: "True"}]}`,
		},
		{
			name:     "refused-once",
			metadata: `annotations: {graft.crossplane.io/create-refused: a, crossplane.io/external-name: b}`,
			status:   available,
		},
		{
			name:     "overdue",
			metadata: `annotations: {graft.crossplane.io/async-operation: '{"version":1,"uid":"uid-of-database-overdue","type":"update","phase":"running","started":"2026-01-02T03:00:00Z","deadline":"2026-01-02T04:00:00Z","attempt":1,"token":"t-1","holder":"h"}'}`,
			status:   `{conditions: [{type: OperationRunning, status: "True", reason: Running, message: "update, attempt 1", lastTransitionTime: "2026-01-02T03:00:00Z"}]}`,
		},
		{
			name: "delete-failed",
			metadata: deleted + ", finalizers: [" + own + `],
			annotations: {graft.crossplane.io/async-operation: '{"version":1,"uid":"uid-of-database-delete-failed","type":"delete","phase":"failed","attempt":1,"token":"t-1","holder":"h","started":"2026-01-02T03:00:00Z","deadline":"2026-01-02T04:00:00Z","ended":"2026-01-02T03:00:00Z"}'}`,
			status: `{conditions: [
			{type: Deleting, status: "True", reason: WaitingForAsyncOperation, message: "As Graft says."},
			{type: OperationRunning, status: "False", reason: Failed, message: "Cannot delete it."}]}`,
		},
	} {
		metadata := "name: " + o.name
		if o.metadata != "" {
			metadata += ", " + o.metadata
		}
		text := "apiVersion: cloud.example.org/v1\nkind: Database\nmetadata: {" + metadata + "}\n"
		if o.spec != "" {
			text += "spec: " + o.spec + "\n"
		}
		if o.status != "" {
			text += "status: " + o.status + "\n"
		}
		a.add(t, text)
		got.WriteString(a.result(t, "why database/"+o.name))
	}
	golden(t, "upstream.golden", got.String())
}

// reported returns a status in which Graft has reported a deletion.
func reported(reason string) string {
	return `{conditions: [{type: Deleting, status: "True", reason: ` + reason +
		`, message: As Graft said., lastTransitionTime: "2026-01-02T04:59:30Z"}]}`
}

// The advice repairs the object that it is about.
func TestWhy_Advice(t *testing.T) {
	const deleted = `deletionTimestamp: "2026-01-02T04:59:00Z", finalizers: [finalizer.managedresource.crossplane.io]`
	for name, tc := range map[string]struct {
		reason   string
		metadata string
		spec     string
		status   string
		flags    string
		want     string
		not      string
	}{
		"EarlierOperation": {
			reason: "The token of an earlier operation should not be searched for.",
			metadata: `annotations: {crossplane.io/external-create-pending: "2026-01-02T04:00:00Z",
			graft.crossplane.io/async-operation: '{"version":1,"uid":"uid-of-database-a","type":"delete","phase":"failed","token":"t-1","started":"2026-01-02T03:00:00Z","pending":"2026-01-02T02:00:00Z","attempt":1,"holder":"h","deadline":"2026-01-02T04:00:00Z","ended":"2026-01-02T03:00:00Z"}'}`,
			want: "in the external system: created after 2026-01-02T04:00:00Z. If it exists",
			not:  "with the token",
		},
		"OwnOperation": {
			reason: "The token of the create itself should be searched for.",
			metadata: `annotations: {crossplane.io/external-create-pending: "2026-01-02T03:00:00Z",
			graft.crossplane.io/async-operation: '{"version":1,"uid":"uid-of-database-a","type":"create","phase":"unknown","token":"t-1","started":"2026-01-02T03:00:00Z","pending":"2026-01-02T03:00:00Z","attempt":1,"holder":"h","deadline":"2026-01-02T04:00:00Z","ended":"2026-01-02T03:00:00Z"}'}`,
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
		"Orphaned": {
			reason: "The pause of a claim that was let go keeps its composite.",
			metadata: `deletionTimestamp: "2026-01-02T04:59:00Z", finalizers: [backup.example.org/hold],
			annotations: {crossplane.io/paused: "true"}`,
			spec: `resourceRef: {apiVersion: example.org/v1, kind: XApp, name: shop}`,
			want: "drop-finalizer databases.cloud.example.org/a backup.example.org/hold",
			not:  "--unpause",
		},
		"OrphanedReported": {
			reason: "A report from before the claim was let go should not end its pause.",
			metadata: `deletionTimestamp: "2026-01-02T04:59:00Z", finalizers: [backup.example.org/hold],
			annotations: {crossplane.io/paused: "true"}`,
			spec:   `resourceRef: {apiVersion: example.org/v1, kind: XApp, name: shop}`,
			status: `{type: Deleting, status: "True", reason: BlockedByPause, message: "As Graft says."}`,
			want:   "drop-finalizer databases.cloud.example.org/a backup.example.org/hold",
			not:    "--unpause",
		},
		"ConnectFailed": {
			reason:   "Another provider config may log in to another account, where the external resource is not found.",
			metadata: deleted,
			status:   `{type: Deleting, status: "True", reason: ConnectFailed, message: "As Graft says."}`,
			want:     "only one that logs in to the same account",
			not:      "kubectl patch",
		},
		"DeadlineExceeded": {
			reason: "The reason that the deadline replaces should have its advice, too.",
			metadata: deleted +
				`, annotations: {crossplane.io/external-create-pending: "2026-01-02T04:00:00Z"}`,
			status: `{type: Deleting, status: "True", reason: DeadlineExceeded, message: "As Graft says."}`,
			want:   "kubectl graft resolve databases.cloud.example.org/a --not-created",
			not:    "kubectl graft reconcile",
		},
		"DeadlineExceededError": {
			reason:   "The error in Synced should be repaired after the deadline, too.",
			metadata: deleted,
			status: `{type: Deleting, status: "True", reason: DeadlineExceeded, message: "As Graft says."},
			{type: Synced, status: "False", reason: ReconcileError, message: "connect failed: no such Secret"}`,
			want: "to do: Repair what the error says, then reconcile it now.",
			not:  "kubectl graft resolve",
		},
		"FailedCreate": {
			reason: "A create that failed should be settled if its provider cannot look up the external resource.",
			metadata: `annotations: {crossplane.io/external-create-pending: "2026-01-02T03:00:00Z",
			crossplane.io/external-create-failed: "2026-01-02T03:00:01Z"}`,
			status: `{type: Synced, status: "False", reason: ReconcileError,
			message: "observe failed: cannot look up the external resource of a create that failed: boom"}`,
			want: "CreateResultUnknown\n  observe failed: cannot look up",
			not:  "(a guess)",
		},
		"FailedCreateWhileDeleted": {
			reason: "The create should be settled in the same way while the object is being deleted.",
			metadata: deleted + `, annotations: {crossplane.io/external-create-pending: "2026-01-02T03:00:00Z",
			crossplane.io/external-create-failed: "2026-01-02T03:00:01Z"}`,
			status: `{type: Deleting, status: "True", reason: ObserveFailed, message: "As Graft says."},
			{type: Synced, status: "False", reason: ReconcileError,
			message: "observe failed: cannot look up the external resource of a create that failed: boom"}`,
			want: "kubectl graft resolve databases.cloud.example.org/a --not-created",
			not:  "was settled",
		},
		"FailedRecord": {
			reason: "The report of a provider that asks a person about a create that failed should be believed.",
			metadata: `annotations: {crossplane.io/external-create-pending: "2026-01-02T03:00:00Z",
			crossplane.io/external-create-failed: "2026-01-02T03:00:01Z",
			graft.crossplane.io/async-operation: '{"version":1,"uid":"uid-of-database-a","type":"create","phase":"failed","token":"t-1","started":"2026-01-02T03:00:00Z","pending":"2026-01-02T03:00:00Z","attempt":1,"holder":"h","deadline":"2026-01-02T04:00:00Z","ended":"2026-01-02T03:00:00Z"}'}`,
			status: `{type: OperationRunning, status: "False", reason: OutcomeUnknown, message: "As Graft says."}`,
			want:   "with the token t-1. If it exists, store its name.\n    $ kubectl graft resolve",
			not:    "was settled",
		},
		"Protected": {
			reason:   "A Usage should stay if the object that it protects is not being deleted.",
			metadata: `labels: {crossplane.io/in-use: "true"}`,
			status:   `{type: Ready, status: "True", reason: Available}`,
			want:     "note: ClusterUsage/keep protects it: Backups read it.",
			not:      "kubectl delete",
		},
		"ProtectedDeleted": {
			reason:   "A Usage should be deleted with the object that it protects.",
			metadata: deleted + `, labels: {crossplane.io/in-use: "true"}`,
			want:     "$ kubectl delete clusterusages.protection.crossplane.io/keep",
			not:      "none names it",
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
				"spec: {"+tc.spec+"}\nstatus: {conditions: ["+tc.status+"]}")
			a.add(t, "{apiVersion: protection.crossplane.io/v1beta1, kind: ClusterUsage, metadata: {name: keep}, spec: "+
				"{reason: Backups read it, of: {apiVersion: cloud.example.org/v1, kind: Database, resourceRef: {name: a}}}}")
			got := a.result(t, "why database/a"+tc.flags)
			if !strings.Contains(got, tc.want) || strings.Contains(got, tc.not) {
				t.Errorf("%s want %q and not %q, got:\n%s", tc.reason, tc.want, tc.not, got)
			}
		})
	}
}

// An object without conditions is ready only if objects of its kind never report whether they are.
func TestWhy_NeverReported(t *testing.T) {
	const (
		database = "apiVersion: cloud.example.org/v1\nkind: Database\nmetadata: {name: a}\n"
		synced   = `status: {conditions: [{type: Synced, status: "True", reason: ReconcileSuccess}]}`
		crd      = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: databases.cloud.example.org
  ownerReferences: [{apiVersion: pkg.crossplane.io/v1, kind: ProviderRevision, name: cloud-1, uid: r1, controller: true}]
`
		composite = `apiVersion: example.org/v1
kind: XApp
metadata: {name: shop}
spec: {resourceRefs: [{apiVersion: cloud.example.org/v1, kind: Database, name: a}]}
status: {conditions: [{type: Ready, status: "True", reason: Available}]}
`
	)
	for name, tc := range map[string]struct {
		reason  string
		objects []string
		line    string
		want    string
		code    int
	}{
		"Managed": {
			reason:  "A managed resource that was never reconciled is not ready. It may wait for a rate limit.",
			objects: []string{database},
			line:    "why database/a",
			want: "Database/a  NotReady (a guess)\n  Its controller has not reported whether it is ready: it does not " +
				"run, or has not reconciled the object. A managed resource may wait for a rate limit.\n",
			code: exitFound,
		},
		"Reconciled": {
			reason:  "A provider that reconciles and reports no readiness is not one that does not run.",
			objects: []string{database + synced},
			line:    "why database/a",
			want:    "Database/a  NotReady (a guess)\n  Its controller has not reported whether it is ready.\n",
			code:    exitFound,
		},
		"NotInstalled": {
			reason:  "The provider of a managed resource that was never reconciled may not be installed.",
			objects: []string{database, crd},
			line:    "why database/a",
			want:    "guess: Its provider is not installed any more (ProviderRevision cloud-1 does not exist)",
			code:    exitFound,
		},
		"ProviderDown": {
			reason: "Crossplane v2 reports the health of a provider's pod in another condition than v1.",
			objects: []string{database, crd, `apiVersion: pkg.crossplane.io/v1
kind: ProviderRevision
metadata: {name: cloud-1}
status: {conditions: [{type: RevisionHealthy, status: "True"}, {type: RuntimeHealthy, status: "False"}]}`},
			line: "why database/a",
			want: "guess: Its provider does not run: ProviderRevision cloud-1 is not healthy.\n",
			code: exitFound,
		},
		"Composed": {
			reason: "A composed resource that was never reconciled is in the way of its composite.",
			objects: []string{composite, strings.Replace(database, "{name: a}", "{name: a, ownerReferences: "+
				"[{apiVersion: example.org/v1, kind: XApp, name: shop, uid: uid-of-xapp-shop, controller: true}]}", 1)},
			line: "why xapp/shop",
			want: "└─ Database/a  NotReady (a guess)\n",
		},
		"Composite": {
			reason:  "Crossplane reports whether a composite is ready.",
			objects: []string{"{apiVersion: example.org/v1, kind: XApp, metadata: {name: shop}}"},
			line:    "why xapp/shop",
			want:    "XApp/shop  NotReady (a guess)\n",
			code:    exitFound,
		},
		"CompositePolicies": {
			reason: "The management policies of a composite are a field of its own, and pause nothing.",
			objects: []string{`apiVersion: example.org/v1
kind: XApp
metadata: {name: shop, finalizers: [composite.apiextensions.crossplane.io]}
spec: {managementPolicies: []}
status: {conditions: [{type: Ready, status: "True", reason: Available}]}`},
			line: "why xapp/shop",
			want: "XApp/shop  Ready\n",
		},
		"Claim": {
			reason:  "Crossplane reports whether a claim is ready.",
			objects: []string{"{apiVersion: example.org/v1, kind: App, metadata: {name: shop, namespace: a}}"},
			line:    "why app/shop -n a",
			want:    "App/shop in a  NotReady (a guess)\n",
			code:    exitFound,
		},
		"ProviderConfig": {
			reason:  "Nothing reports whether a ProviderConfig is ready.",
			objects: []string{"{apiVersion: cloud.example.org/v1, kind: ProviderConfig, metadata: {name: c, namespace: a}}"},
			line:    "why providerconfig/c -n a",
			want:    "ProviderConfig/c in a  Ready\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, term := newAPI(t), &terminal{}
			for _, o := range tc.objects {
				a.add(t, o)
			}
			code := a.run(t, term, strings.Fields(tc.line)...)
			if got := term.out.String(); !strings.Contains(got, tc.want) || code != tc.code {
				t.Errorf("%s\nwant exit status %d and %q, got %d:\n%s", tc.reason, tc.code, tc.want, code, got)
			}
		})
	}
}
