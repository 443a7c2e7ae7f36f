package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// waitFor is how long a deletion may take before its provider is suspected.
const waitFor = 10 * time.Minute

// advise adds the repair for the reason. docs/operators.md has the same table.
func (e *examination) advise() {
	if e.State == Ready || e.State == NotReady {
		return
	}
	if e.paused() && e.Reason != ReasonBlockedByPause && e.Reason != ReasonPaused {
		e.Note("Reconciliation is paused: the conditions are from before the pause.")
		e.adviseUnpause()
	}

	switch e.Reason {
	case ReasonBlockedByPause, ReasonPaused:
		e.adviseUnpause()
	case ReasonWaitingForFinalizers:
		e.adviseFinalizers()
	case ReasonDeadlineExceeded:
		// The message has the reason that this one replaces. Conditions and annotations may show it, too.
		e.adviseFinalizers()
		if e.state.CreateUnknown {
			e.adviseResolve()
		} else if e.synced.Status == "False" {
			e.adviseRepair()
		}
	case ReasonInitializeFailed, ReasonObserveFailed, ReasonReconcileFailed, "ReconcileError":
		e.adviseRepair()
	case ReasonConnectFailed:
		e.Advise("Repair its ProviderConfig or the Secret of that, then reconcile it now.", e.graft("reconcile"))
		e.Advise("Or use another provider config, but only one that logs in to the same account: in another account " +
			"the external resource is not found, and it is left behind without an error.")
	case ReasonNamespaceTerminating:
		e.Advise("Use a provider with Graft's usage tracker, or leave the external resource behind.", e.graft("orphan"))
	case ReasonCreateResultUnknown, ReasonOutcomeUnknown, ReasonRecordUnusable, ReasonFindFailed:
		e.adviseResolve()
	case ReasonWaitingForExternalResource:
		e.Advise(e.lookAtExternal() + "its deletion takes long, or something there prevents it.")
	case ReasonExternalDeleteFailed:
		e.Advise(e.lookAtExternal() + "often other resources depend on it, or it is protected there.")
	case ReasonForceOrphaned:
		e.adviseFinalizers()
		if len(e.finalizers.By(Other)) == 0 {
			events := "kubectl events --for " + e.target
			if e.o.GetNamespace() == "" {
				events += " -n default" // Events of a cluster-scoped object are there.
			}
			e.Advise("If the API server refused it, the event CannotForceOrphan says why.", events)
		}
	case ReasonTerminal:
		e.Advise("Repair what the error says: the spec, a label, an annotation or the provider config. "+
			"If the repair is elsewhere, reconcile it now.", e.graft("reconcile"))
	case ReasonThrottled:
		e.Advise("Wait until the time in the message. If it stays, lower the limit of its provider, " +
			"or let the external system allow more.")
	case ReasonChangedBack:
		e.adviseConflict()
	case ReasonFailed:
		e.Advise("Wait for the next attempt. To retry now, change the spec.")
	case ReasonCreateRefused:
		e.Advise("To manage that external resource:",
			e.graft("resolve", text.ShellQuote("--external-name="+cmp.Or(e.ExternalName, "NAME"))))
		e.Advise("To have another one, give it another external name:",
			"kubectl annotate "+e.target+" --overwrite "+AnnotationExternalName+"=NAME")
	case ReasonReservedByOther:
		e.Advise("Delete one of the two, or hand over: let the holder observe only.", e.reservations())
	case ReasonWaitingForAsyncOperation:
		if e.operation.Reason == ReasonFailed {
			e.Advise("Wait for the next attempt, or retry now.", e.graft("reconcile"))
		} else {
			e.advisePatience()
		}
	case ReasonRunning, ReasonQueued, ReasonInterrupted:
		e.advisePatience()
	case ReasonWaitingForCreate, ReasonConfirmingAbsence, ReasonExternalDeleteRequested:
		e.Advise("Wait.")
	case ReasonDeletionRequested:
		if e.Since != nil && e.now.Sub(e.Since.Time) > waitFor {
			e.Guessed("Its controller does not run, or can't reach the API server.")
			e.Advise("Look at the log of its controller.")
		} else {
			e.Advise("Wait.")
		}
	}
}

// advisePatience about an operation in progress.
func (e *examination) advisePatience() {
	op, run := e.state.Operation, e.state.Run
	switch {
	case op != nil && op.Phase == asyncstate.PhaseRunning && (run.Type == "" || run.Unresolved):
		e.Guessed("The operation is past its deadline: its provider does not run, or the operation does not end.")
		e.Advise("Look at the log of its provider.")
	case run.Unresolved:
		e.Advise("Wait until " + Until(run) + ". If it does not, look at the log of its provider.")
	default:
		e.Advise("Wait.")
	}
}

func (e *examination) adviseConflict() {
	e.Advise("Let one of the two decide: remove the field from the manifest of the other writer, " +
		"or LateInitialize from the management policies.")
}

// adviseUnpause advises to end the pause, but not of a claim or composite that may have been orphaned. When that pause
// ends, Crossplane deletes the composite or the composed resources, even if its finalizer is gone.
func (e *examination) adviseUnpause() {
	if e.o.GetDeletionTimestamp() != nil && len(e.finalizers.By(Crossplane)) == 0 && len(ResourceReferences(e.o)) > 0 {
		if e.Reason == ReasonBlockedByPause || e.Reason == ReasonPaused {
			e.adviseFinalizers()
		}
		return
	}
	e.Advise("End the pause.", e.graft("reconcile", "--unpause"))
}

func (e *examination) adviseFinalizers() {
	for _, f := range e.finalizers.By(Other) {
		e.Advise(fmt.Sprintf("Look at the log of %s. If that controller no longer exists, remove its finalizer.",
			cmp.Or(f.Manager, "the controller of "+f.Name)), e.graft("drop-finalizer", text.ShellQuote(f.Name)))
	}
	if slices.Contains(e.o.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		e.Note("foregroundDeletion goes when the objects that it owns are deleted.")
	}
}

// adviseRepair of an error, which may be about the look-up of a create that failed.
func (e *examination) adviseRepair() {
	e.Advise("Repair what the error says, then reconcile it now.", e.graft("reconcile"))
	if e.state.CreateUnknown {
		e.adviseResolve()
	}
}

// adviseResolve names the time before which resolve refuses.
func (e *examination) adviseResolve() {
	if Blocks(e.state.Run, e.o) {
		e.Advise("Wait until " + Until(e.state.Run) + ", because its create may be in progress. Then:")
	}
	search := "Look for the external resource in the external system"
	if since := e.state.CreateStarted; !since.IsZero() {
		search += ": created after " + text.Stamp(since)
	}
	if op := e.Operation; op != nil && op.Type == asyncstate.Create {
		search += ", with the token " + op.Token
	}
	e.Advise(search+". If it exists, store its name.", e.graft("resolve", "--external-name=NAME"))
	e.Advise("If it does not exist, and will not:", e.graft("resolve", "--not-created"))
}

// lookAtExternal begins advice to look at the external resource.
func (e *examination) lookAtExternal() string {
	if e.ExternalName == "" {
		return "Look at the external resource in the external system: "
	}
	return fmt.Sprintf("Look at external resource %q in the external system: ", e.ExternalName)
}

func (e *examination) graft(verb string, args ...string) string {
	return strings.Join(append([]string{"kubectl graft", verb, e.target}, args...), " ")
}

// reservations is the command that lists the holders, which may be in any namespace of the same cluster.
func (e *examination) reservations() string {
	_, flags, _ := strings.Cut(e.target, " ")
	return strings.TrimSpace("kubectl graft reservations -A " + strings.TrimPrefix(flags, "-n "+e.o.GetNamespace()))
}
