//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// A repair is how an operator repairs a Database that has a documented reason. In command lines and output, OBJECT is
// the Database.
type repair struct {
	status corev1.ConditionStatus

	// annotations and finalizer of the Database.
	annotations map[string]string
	finalizer   string

	// well is true if there is nothing to repair. Otherwise why prints step, the next step.
	well bool
	step string

	// run is the command of the plugin after which the provider does the rest. It is empty where the next step is
	// not the plugin's.
	run string

	// created is true if the interrupted create created an external resource, which is named as the Database.
	created bool
}

// repairs returns the repairs by condition and reason.
func repairs() map[string]repair {
	const (
		drop, now   = "drop-finalizer OBJECT " + otherFinalizer + " --yes", "reconcile OBJECT"
		exists, not = "resolve OBJECT --external-name=NAME --yes", "resolve OBJECT --not-created --yes"
		yes, no     = corev1.ConditionTrue, corev1.ConditionFalse
	)
	pending := map[string]string{meta.AnnotationKeyExternalCreatePending: "2026-01-02T03:04:05Z"}
	damaged := map[string]string{"graft.crossplane.io/async-operation": "{"}
	paused := map[string]string{meta.AnnotationKeyReconciliationPaused: "true"}
	dropped := repair{status: yes, finalizer: otherFinalizer, step: "kubectl graft drop-finalizer OBJECT", run: drop}
	return map[string]repair{
		"Deleting/DeletionRequested": {status: yes, step: "Wait."},
		"Deleting/BlockedByPause": {
			status: yes, annotations: paused,
			step: "kubectl graft reconcile OBJECT --unpause", run: "reconcile OBJECT --unpause --yes",
		},
		"Deleting/WaitingForFinalizers": dropped,
		"Deleting/InitializeFailed":     {status: yes, step: "kubectl graft reconcile OBJECT", run: now},
		"Deleting/ObserveFailed":        {status: yes, step: "kubectl graft reconcile OBJECT", run: now},
		"Deleting/ReconcileFailed":      {status: yes, step: "kubectl graft reconcile OBJECT", run: now},
		"Deleting/ConnectFailed":        {status: yes, step: "Repair its ProviderConfig or the Secret", run: now},
		"Deleting/NamespaceTerminating": {status: yes, step: "kubectl graft orphan OBJECT", run: "orphan OBJECT --yes"},
		"Deleting/CreateResultUnknown": {
			status: yes, annotations: pending,
			step: exists[:14], run: exists, created: true,
		},
		"Deleting/ConfirmingAbsence":          {status: yes, step: "Wait."},
		"Deleting/ExternalDeleteRequested":    {status: yes, step: "Wait."},
		"Deleting/WaitingForExternalResource": {status: yes, step: "Look at the external resource"},
		"Deleting/WaitingForAsyncOperation":   {status: yes, step: "Wait."},
		"Deleting/ExternalDeleteFailed":       {status: yes, step: "often other resources depend on it"},
		"Deleting/WaitingForDependents":       {status: yes, step: "WaitingForDependents"},
		"Deleting/BlockedByProtection":        {status: yes, step: "BlockedByProtection"},
		"Deleting/DeadlineExceeded":           dropped,
		"Deleting/ForceOrphaned":              dropped,
		"Deleting/NotDeleting":                {status: no, well: true},

		"OperationRunning/Running":     {status: yes, step: "Wait."},
		"OperationRunning/Queued":      {status: yes, step: "Wait."},
		"OperationRunning/Finished":    {status: no, well: true},
		"OperationRunning/Failed":      {status: no, step: "To retry now, change the spec."},
		"OperationRunning/Interrupted": {status: corev1.ConditionUnknown, step: "Wait."},
		"OperationRunning/OutcomeUnknown": {
			status: no, annotations: pending,
			step: exists[:14], run: exists, created: true,
		},
		"OperationRunning/RecordUnusable": {status: no, annotations: damaged, step: not[:14], run: not},

		"CreateResolved/WaitingForCreate":    {status: no, step: "Wait."},
		"CreateResolved/CreateResultUnknown": {status: no, annotations: pending, step: not[:14], run: not},
		"CreateResolved/FindFailed":          {status: no, annotations: pending, step: not[:14], run: not},
		"CreateResolved/Resolved":            {status: yes, well: true},

		"ExternalNameReserved/ReservedByOther": {status: no, step: "kubectl graft reservations -A"},
		"ExternalNameReserved/Reserved":        {status: yes, well: true},
		"ExternalNameReserved/NotNeeded":       {status: yes, well: true},

		"Synced/Throttled": {status: no, step: "lower the limit of its provider"},
		"Synced/Terminal":  {status: no, step: "kubectl graft reconcile OBJECT", run: now},

		"ConflictingWrites/ChangedBack": {status: yes, step: "Let one of the two decide"},
		"ConflictingWrites/WritesAgree": {status: no, well: true},
	}
}

// Each reason of docs/operators.md is explained, and repaired with the plugin alone where the repair is not outside the
// cluster: after the command of the plugin the provider deletes or creates the external resource.
func TestPlugin_Repairs(t *testing.T) {
	s, p, world := newServer(t), newPlugin(t), cloud.New(cloud.Options{})
	known := repairs()
	for _, reason := range documentedReasons(t) {
		if _, ok := known[reason]; !ok {
			t.Errorf("the table has no case for %s", reason)
		}
	}
	var gone, available []sample.Instance
	for reason, r := range known {
		typ, reason, _ := strings.Cut(reason, "/")
		mg := v1alpha1.NewDatabase("repair-" + strings.ToLower(typ+"-"+reason))
		deleted := typ == "Deleting" && r.status == corev1.ConditionTrue
		conditions := []xpv2.Condition{saying(typ, r.status, reason)}
		if r.well {
			conditions = append(conditions, xpv2.Available())
		}
		if typ == "OperationRunning" && !r.well {
			conditions = append(conditions, xpv2.ReconcileError(errors.New("cannot do it")))
		}
		s.stop(t, mg, r, deleted, conditions...)
		if r.created {
			properties := map[string]string{"size": "1"}
			_, err := world.Session("").Create(t.Context(), cloud.CreateRequest{
				Kind: v1alpha1.DatabaseKind, Name: mg.GetName(), Owner: string(mg.GetUID()), Properties: properties,
			})
			must(t, "Create()", err)
		}
		object := "databases.sample.graft.crossplane.io/" + mg.GetName()
		line := func(s string) string { return strings.NewReplacer("OBJECT", object, "NAME", mg.GetName()).Replace(s) }
		if r.well {
			p.says(t, line("why OBJECT"), 0, "Ready")
			continue
		}
		p.says(t, line("why OBJECT"), 1, ": "+reason+"\n", reported, line(r.step))
		if r.run == "" {
			continue
		}
		before := read(t, s, mg).ResourceVersion
		p.says(t, strings.TrimSuffix(line(r.run), " --yes")+" --dry-run=server", 0, "ry run")
		if now := read(t, s, mg).ResourceVersion; now != before {
			t.Errorf("%s --dry-run=server has written", line(r.run))
		}
		p.says(t, line(r.run), 0)
		now := &v1alpha1.Database{}
		must(t, "Get()", client.IgnoreNotFound(s.Get(t.Context(), client.ObjectKeyFromObject(mg), now)))
		for key := range r.annotations {
			if value, ok := now.Annotations[key]; ok {
				t.Errorf("%s has left the annotation %s: %s", line(r.run), key, value)
			}
		}
		if deleted {
			gone = append(gone, mg)
		} else {
			available = append(available, mg)
		}
	}
	start(t, graft, setup{connectors: syncConnectors(world)})
	s.until(t, "what was repaired is available", available, isAvailable)
	eventually(t, "what was repaired is gone", func() (bool, string) {
		all := s.list(t.Context(), t)
		for _, mg := range gone {
			if now, ok := all[mg.GetUID()]; ok {
				return false, mg.GetName() + ": Synced " + condition(now, xpv2.TypeSynced)
			}
		}
		return true, ""
	})
	all := s.list(t.Context(), t)
	for _, r := range world.Inventory() {
		if all[types.UID(r.Owner)] == nil {
			t.Errorf("external resource %s is managed by nothing", r.ID)
		}
	}
}

// An object that waits for its external name is listed with the holder, whose removal frees the name.
func TestPlugin_Reservation(t *testing.T) {
	s, p := newServer(t), newPlugin(t)
	holder, waiting := v1alpha1.NewDatabase("plugin-holder"), v1alpha1.NewDatabase("plugin-waits")
	s.stop(t, holder, repair{}, false)
	s.stop(t, waiting, repair{}, false, xpv2.ReconcileError(errors.New("cannot reserve")),
		saying("ExternalNameReserved", corev1.ConditionFalse, "ReservedByOther"))
	who, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": v1alpha1.DatabaseKind,
		"name": holder.GetName(), "uid": holder.GetUID(),
	})
	must(t, "Marshal()", err)
	annotations := map[string]string{
		"graft.crossplane.io/reserves": "shared", "graft.crossplane.io/holder": string(who),
	}
	s.createFor(t, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin", Namespace: namespace, Annotations: annotations},
	})
	p.says(t, "why database/plugin-waits", 1, ": ReservedByOther\n", reported, "kubectl graft reservations -A")
	p.says(t, "reservations --conflicts", 1, "plugin-waits", reported)
	p.says(t, "reservations -A", 0, "Held    Database/plugin-holder   shared")
	p.says(t, "orphan database/plugin-holder --yes", 0, "Database/plugin-holder is re") // Removed, or released.
	eventually(t, "the name is free", func() (bool, string) {
		out, _ := p.run(t, "reservations", "-A")
		return strings.Contains(out, "Free    Database/plugin-holder   shared"), out
	})
}

// reported is the message of a condition.
const reported = "As Graft says."

func saying(typ string, status corev1.ConditionStatus, reason string) xpv2.Condition {
	return xpv2.Condition{
		Type: xpv2.ConditionType(typ), Status: status, Reason: xpv2.ConditionReason(reason), Message: reported,
		LastTransitionTime: metav1.Now(),
	}
}

// stop brings a managed resource into the state in which Graft leaves one that has the conditions.
func (s server) stop(t *testing.T, mg sample.Instance, r repair, deleted bool, conditions ...xpv2.Condition) {
	t.Helper()
	finalizers := []string{managedFinalizer}
	if r.finalizer != "" {
		finalizers = append(finalizers, r.finalizer)
	}
	mg.SetFinalizers(finalizers)
	meta.AddAnnotations(mg, r.annotations)
	s.create(t, mg)
	if deleted {
		s.remove(t, mg)
		must(t, "Get()", s.Get(t.Context(), client.ObjectKeyFromObject(mg), mg))
	}
	mg.SetConditions(conditions...)
	must(t, "Status().Update()", s.Status().Update(t.Context(), mg))
}

// documentedReasons returns the reasons in the tables of docs/operators.md, after the type of their condition.
func documentedReasons(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operators.md"))
	must(t, "ReadFile()", err)
	row, word := regexp.MustCompile("^\\| (`[^:|]*)"), regexp.MustCompile("`([A-Z][A-Za-z]{5,})`")
	var out []string
	for _, section := range strings.Split(string(text), "\n## ") {
		typ, ok := strings.CutPrefix(section, "Reasons of `")
		if !ok {
			continue
		}
		typ, _, _ = strings.Cut(typ, "`")
		for line := range strings.Lines(section) {
			for _, w := range word.FindAllStringSubmatch(strings.Join(row.FindStringSubmatch(line), ""), -1) {
				out = append(out, typ+"/"+w[1])
			}
		}
	}
	return out
}
