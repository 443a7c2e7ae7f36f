package crashtest

import (
	"slices"
	"strings"

	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/oracle"
)

// hint names the usual mistake in the test if a run without a fault ends badly.
func hint(r *run, v oracle.Violation) string {
	failure, starting, reconciling := r.sim.Progress()
	if strings.Contains(v.Text, failure) {
		failure = ""
	} else {
		failure = " The last reconcile failed: " + history.Short(failure) + "."
	}
	said := v.Text + failure
	legacy, isLegacy := r.first.(orphanable)
	gvk, _ := apiutil.GVKForObject(r.first, r.provider.Scheme)

	switch {
	case v.Verdict == oracle.Leak && isLegacy && legacy.GetDeletionPolicy() == "" && !hasSchema(r.provider.crds, gvk):
		return failure + " Upstream's reconciler orphans the external resource of an object without a deletion " +
			"policy: set spec.deletionPolicy in Provider.Object, or Provider.CRDs, which have defaults."
	case v.Verdict == oracle.LostName && r.provider.annotated:
		return failure + " If the provider keeps the name elsewhere than in its annotation, set Provider.Name."
	case v.Verdict == oracle.LostUpdate:
		return failure + " Provider.Change has to show in Cloud.Exists."
	case v.Verdict == oracle.SharedResource && r.provider.Second == nil:
		return " If a field of the spec names the external resource, set Provider.Second, which changes it."
	case v.Verdict != oracle.NeverReady:
		return ""
	case strings.Contains(said, string(xpv2.ReasonReconcilePaused)):
		return failure + " Nothing is reconciled without management policies: set spec.managementPolicies in " +
			"Provider.Object, or Provider.CRDs, which have defaults."
	case starting:
		return " Provider.Start did not return: let it return the reconciler, and add runnables to Process.Manager."
	case reconciling:
		return " A reconcile did not return: let it return, and requeue in place of a loop."
	case strings.Contains(said, "no kind is registered"):
		return failure + " Add the kind to Provider.Scheme."
	case strings.Contains(said, "server-side apply is not supported"):
		return failure + " Set the fields of Provider.Object that its references resolve to."
	case strings.Contains(said, "not found"):
		return failure + " List objects that the provider reads in Provider.Beside."
	case !slices.ContainsFunc(r.events, func(e *history.Event) bool { return e.Request.Target == history.External }):
		return failure + " No call to the external system was seen: use Process.Transport, Process.Step or Connector."
	default:
		return failure
	}
}

// refusals returns what failed in a run without a fault although the run may end well: calls, reconciles, and requests
// that the API server refuses whenever they are repeated.
func refusals(events []*history.Event) (out []string) {
	denied := false
	for _, e := range events {
		switch {
		case e.Kind == history.KindAct && (e.Act.Kind == history.Denied || e.Act.Kind == history.Granted):
			denied = e.Act.Kind == history.Denied
		case denied:
		case e.Kind == history.KindReconciled && e.Outcome.Failed && !strings.Contains(e.Text, "object was modified"):
			out = append(out, "reconcile of "+history.Short(e.Text))
		case e.Kind == history.KindAnswer && (e.Outcome.Refused ||
			e.Request.Target == history.External && e.Outcome.Failed && e.Outcome.Status != 404):
			out = append(out, e.Request.String()+": "+history.Short(e.Text))
		}
	}
	return out
}
