// Package diagnosis says how an object of Crossplane's is, from nothing but the object: by
// what Graft reports in conditions and annotations, and without Graft as far as
// crossplane-runtime's own conditions, annotations and finalizers tell.
package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// A State is how an object is, in one word.
type State string

// States, those that need a person most first.
const (
	Stopped  State = "Stopped"  // Until a person acts.
	Deleting State = "Deleting" // The deletion was requested, and the object still exists.
	Paused   State = "Paused"   // By annotation or management policy.
	Failing  State = "Failing"  // Its controller retries, and Synced has the error.
	Working  State = "Working"  // An operation of its provider runs.
	NotReady State = "NotReady" // Nothing says why.
	Ready    State = "Ready"    // Or of a kind that never reports it, without conditions that say otherwise.
	Unknown  State = "Unknown"  // The object can't be read.
)

// A Diagnosis describes the state of an object, and the repair.
type Diagnosis struct {
	State   State        `json:"state"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Guess   bool         `json:"guess,omitempty"` // The reason is concluded from the object: nothing has reported it.
	Since   *metav1.Time `json:"since,omitempty"` // Of a deletion its request.
	Error   string       `json:"error,omitempty"` // Synced says this, which the message does not.

	ExternalName string     `json:"externalName,omitempty"`
	Operation    *Operation `json:"operation,omitempty"`
	Progress     string     `json:"progress,omitempty"`
	Finalizers   Finalizers `json:"finalizers,omitempty"`
	Notes        []Note     `json:"notes,omitempty"`
	Advice       []Advice   `json:"advice,omitempty"`
}

// An Operation of an asynchronous provider.
type Operation struct {
	Type     asyncstate.Type  `json:"type"`
	Phase    asyncstate.Phase `json:"phase"`
	Attempt  int              `json:"attempt"`
	Token    string           `json:"token,omitempty"`
	Started  metav1.Time      `json:"started"`
	Deadline metav1.Time      `json:"deadline"`
}

// A Note is a fact that matters for the diagnosis.
type Note struct {
	Text  string `json:"text"`
	Guess bool   `json:"guess,omitempty"`
}

// Advice is one way to repair an object, with its commands.
type Advice struct {
	Text     string   `json:"text"`
	Commands []string `json:"commands,omitempty"`
}

// Note adds a fact.
func (d *Diagnosis) Note(format string, args ...any) {
	d.Notes = append(d.Notes, Note{Text: fmt.Sprintf(format, args...)})
}

// Guessed adds a probable fact.
func (d *Diagnosis) Guessed(format string, args ...any) {
	d.Notes = append(d.Notes, Note{Text: fmt.Sprintf(format, args...), Guess: true})
}

// Advise adds a repair.
func (d *Diagnosis) Advise(text string, commands ...string) {
	d.Advice = append(d.Advice, Advice{Text: text, Commands: commands})
}

// A Kind describes the kind of an object.
type Kind struct {
	Managed      bool // It is a kind of managed resources.
	ReportsReady bool // A controller sets Ready on all of its objects.
}

// Of returns the diagnosis of an object. target is how commands name it, with its kind, namespace and context.
func Of(o *unstructured.Unstructured, target string, kind Kind, now time.Time) Diagnosis {
	e := examination{
		o: o, target: target, kind: kind, now: now, finalizers: FinalizersOf(o), state: StateOf(o, now),
		deleting: conditionOf(o, typeDeleting), synced: conditionOf(o, typeSynced),
		operation: conditionOf(o, typeOperation), conflict: conditionOf(o, typeConflict),
	}
	e.ExternalName = ExternalName(o)
	if r := e.state.Operation; r != nil {
		e.Operation = &Operation{
			Type: r.Type, Phase: r.Phase, Attempt: r.Number, Token: r.Token,
			Started: metav1.NewTime(r.Started), Deadline: metav1.NewTime(r.Deadline),
		}
	}

	if o.GetDeletionTimestamp() != nil {
		e.deletion()
	} else {
		e.ordinary()
	}
	if e.State != Ready {
		e.Finalizers = e.finalizers
	}
	if e.operation.Status == "True" {
		e.Progress = e.operation.Message
	}
	if e.conflict.Status == "True" && e.Reason != ReasonChangedBack {
		e.Note("Another writer changes a field back: %s", e.conflict.Message)
		e.adviseConflict()
	}
	if e.synced.Status == "False" && !strings.Contains(e.Message, e.synced.Message) {
		e.Error = e.synced.Message
	}
	if e.outdated() {
		e.Advise("Reconcile it now: what was reported is no longer true.", e.graft("reconcile"))
	} else {
		e.advise()
	}
	return e.Diagnosis
}

// createUnknown is the message of a guess.
const createUnknown = "It is unknown whether its create created an external resource."

// An examination of one object.
type examination struct {
	Diagnosis

	o          *unstructured.Unstructured
	target     string
	kind       Kind
	now        time.Time
	finalizers Finalizers
	state      asyncstate.State

	deleting, synced, operation, conflict metav1.Condition
}

func (e *examination) is(s State, since metav1.Time, reason, message string) {
	e.State, e.Reason, e.Message = s, reason, message
	if !since.IsZero() {
		e.Since = &since
	}
}

// reported is the state that a condition has reported.
func (e *examination) reported(s State, c metav1.Condition) {
	e.is(s, c.LastTransitionTime, c.Reason, c.Message)
}

// deletion examines an object that is being deleted.
func (e *examination) deletion() {
	since := metav1.NewTime(e.o.GetDeletionTimestamp().UTC())
	if e.deleting.Status == "True" {
		e.is(Deleting, since, e.deleting.Reason, e.deleting.Message)
		return
	}

	// Nothing of Graft's. The order is that in which crossplane-runtime stops.
	progress := e.createProgress()
	others, own := e.finalizers.By(Other), len(e.finalizers.By(Crossplane)) > 0
	guess := func(reason, message string) {
		e.is(Deleting, since, reason, message)
		e.Guess = true
	}

	switch waits := e.finalizers.waitsFor(); {
	case e.o.GetKind() == "Namespace" && e.o.GroupVersionKind().Group == "":
		if message := e.remains(); message != "" {
			e.is(Deleting, since, ReasonWaitingForDependents, message)
		} else {
			guess(ReasonWaitingForDependents, "The objects in it are deleted first.")
		}
	case len(e.finalizers) == 0:
		guess("", "Nothing holds it any more.")
	case own && e.paused():
		guess(ReasonBlockedByPause, "Reconciliation is paused, and the deletion with it.")
	case own && progress != "":
		guess(ReasonDeletionRequested, progress)
	case own && e.state.CreateUnknown:
		guess(ReasonCreateResultUnknown, createUnknown)
	case len(others) > 0:
		guess(ReasonWaitingForFinalizers, "Finalizers of other controllers hold it: "+others.String()+".")
	case e.synced.Status == "False":
		e.is(Deleting, since, ReasonReconcileFailed, e.synced.Message)
	case waits != "":
		guess(ReasonWaitingForDependents, waits)
	case own && len(e.finalizers.By(Kubernetes)) == 0:
		guess(ReasonDeletionRequested, "Its controller has not finished the deletion, and does not say why.")
	default:
		guess(ReasonWaitingForFinalizers, "Finalizers hold it: "+e.finalizers.String()+".")
	}
}

// createProgress describes a create that may be in progress although nothing reports it. It is empty if there is none.
func (e *examination) createProgress() string {
	if e.state.Run.Type == "" || !e.state.CreateUnknown || e.createReported() {
		return ""
	}
	return "Its create may be in progress until " + Until(e.state.Run) + "."
}

// createReported reports whether crossplane-runtime has stopped since the last create began, because it does not know
// the result.
func (e *examination) createReported() bool {
	return strings.HasPrefix(e.synced.Message, createIncomplete) &&
		!e.synced.LastTransitionTime.Time.Before(e.state.CreateStarted)
}

// remains returns the messages of a namespace about the objects in it. The finalizers of a namespace are in its spec.
func (e *examination) remains() string {
	var said []string
	for _, typ := range []string{
		"NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure",
		"NamespaceDeletionContentFailure", "NamespaceContentRemaining", "NamespaceFinalizersRemaining",
	} {
		if c := conditionOf(e.o, typ); c.Status == "True" {
			said = append(said, c.Message)
		}
	}
	return strings.Join(said, "; ")
}

// ordinary examines an object that is not being deleted.
func (e *examination) ordinary() {
	resolved, reserved := conditionOf(e.o, typeResolved), conditionOf(e.o, typeReserved)
	ready, unhealthy := conditionOf(e.o, typeReady), e.unhealthy()
	began, unknown := metav1.NewTime(e.state.CreateStarted), e.state.CreateUnknown
	progress, failing := e.createProgress(), e.synced.Status == "False"

	switch {
	case e.operation.Status == "False" &&
		(e.operation.Reason == ReasonOutcomeUnknown || e.operation.Reason == ReasonRecordUnusable):
		e.reported(Stopped, e.operation)
	case e.operation.Status == "True", e.operation.Reason == ReasonInterrupted:
		e.reported(Working, e.operation)
	case failing && e.synced.Reason == ReasonTerminal:
		e.reported(Stopped, e.synced)
	case failing && e.synced.Reason == ReasonThrottled:
		e.reported(Failing, e.synced)
	case failing && e.operation.Reason == ReasonFailed:
		e.reported(Failing, e.operation)
	case resolved.Status == "False" && resolved.Reason == ReasonWaitingForCreate:
		e.reported(Working, resolved)
	case resolved.Status == "False":
		e.reported(Stopped, resolved)
	case progress != "":
		e.is(Working, began, ReasonRunning, progress)
		e.Guess = true
		if strings.HasPrefix(e.synced.Message, createIncomplete) {
			e.Note("Synced was reported before this create began.")
		}
	case unknown && (strings.HasPrefix(e.synced.Message, createIncomplete) ||
		failing && strings.Contains(e.synced.Message, createFailed)):
		e.is(Stopped, began, ReasonCreateResultUnknown, e.synced.Message)
	case reserved.Status == "False" && reserved.Reason == ReasonReservedByOther:
		e.reported(Stopped, reserved)
	case unknown:
		e.is(Stopped, began, ReasonCreateResultUnknown, createUnknown)
		e.Guess = true
	case e.state.CreateRefused && e.synced.Status != "True": // It is True if the policies only let it observe.
		e.is(Stopped, e.synced.LastTransitionTime, ReasonCreateRefused,
			fmt.Sprintf("The external resource %q existed right before its create, and is not managed.",
				e.o.GetAnnotations()[AnnotationCreateRefused]))
	case e.paused():
		e.is(Paused, e.synced.LastTransitionTime, ReasonPaused, "Reconciliation is paused.")
	case failing:
		e.reported(Failing, e.synced)
	case e.conflict.Status == "True":
		e.reported(Stopped, e.conflict)
		if ready.Status == "False" {
			e.Note("Ready is False: %s: %s", ready.Reason, ready.Message)
		}
	case ready.Status == "False" || ready.Status == "Unknown":
		e.reported(NotReady, ready)
	case unhealthy.Status != "":
		e.reported(NotReady, unhealthy)
	case ready.Status == "" && e.kind.ReportsReady:
		message := "Its controller has not reported whether it is ready"
		if e.synced.Status == "" {
			message += ": it does not run, or has not reconciled the object. A managed resource may wait for a rate limit"
		}
		e.is(NotReady, e.o.GetCreationTimestamp(), "", message+".")
		e.Guess = true
	default:
		e.is(Ready, ready.LastTransitionTime, "", "")
	}
}

func (e *examination) paused() bool { return IsPaused(e.o, e.kind.Managed) }

// unhealthy returns the condition that says that a package or its runtime is not healthy, or an empty one.
func (e *examination) unhealthy() metav1.Condition {
	for _, typ := range []string{typeHealthy, typeRevisionHealthy, typeRuntimeHealthy} {
		if c := conditionOf(e.o, typ); c.Status == "False" || c.Status == "Unknown" {
			return c
		}
	}
	return metav1.Condition{}
}

// outdated notes which conditions are no longer true, and reports whether the reason is from one of them.
func (e *examination) outdated() bool {
	ready, deleted := conditionOf(e.o, typeReady), e.o.GetDeletionTimestamp() != nil
	generation := e.o.GetGeneration()
	if deleted {
		generation-- // The deletion request counts as a change.
	}
	for _, c := range []metav1.Condition{e.deleting, e.synced, ready} {
		if c.ObservedGeneration != 0 && c.ObservedGeneration < generation {
			e.Note("%s was reported for an earlier spec.", c.Type)
		}
	}
	asksForCreate := slices.Contains([]string{
		ReasonCreateResultUnknown, ReasonOutcomeUnknown, ReasonRecordUnusable, ReasonFindFailed,
	}, e.Reason) || !deleted && strings.HasPrefix(e.synced.Message, createIncomplete)

	switch {
	case (e.Reason == ReasonPaused || deleted && e.deleting.Reason == ReasonBlockedByPause) && !e.paused():
		e.Note("The pause has ended since that was reported.")
		return true
	case deleted && e.deleting.Reason == ReasonWaitingForFinalizers && len(e.finalizers.besides()) == 0:
		e.Note("No other controller's finalizer is left since that was reported.")
		return true
	case asksForCreate && !e.state.CreateUnknown:
		e.Note("The create was settled since that was reported.")
		return true
	case deleted && e.deleting.Status != "True" && ready.Status == "True":
		e.Note("Ready is True although the object is being deleted: its controller has not reported the deletion.")
	case !deleted && e.deleting.Status == "True":
		e.Note("Deleting is True although the object is not being deleted: " +
			"it was restored from a backup, or is a copy.")
	}
	return false
}

// WaitsForName reports whether a managed resource waits for its external name, and which managed resource has it.
func WaitsForName(o *unstructured.Unstructured) (holder string, waits bool) {
	c := conditionOf(o, typeReserved)
	return c.Message, c.Status == "False" && c.Reason == ReasonReservedByOther
}
