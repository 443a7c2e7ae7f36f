package diagnosis

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/text"
	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// MayBeStopped reports whether an object with these annotations may wait for a person.
func MayBeStopped(annotations map[string]string) bool {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAnnotations(annotations)
	return annotations[AnnotationOperation] != "" || annotations[AnnotationCreateRefused] != "" ||
		asyncstate.StateOf(o, time.Time{}).CreateUnknown
}

// StateOf returns the state of the operations on the external resource of an object. A create is unknown, too, if the
// provider has reported so: that wins over the annotations.
func StateOf(o *unstructured.Unstructured, now time.Time) asyncstate.State {
	s, synced := asyncstate.StateOf(o, now), conditionOf(o, typeSynced)
	failed := s.CreateFailed && !s.CreateStarted.IsZero() && (AsksPerson(o) ||
		synced.Status == "False" && strings.Contains(synced.Message, createFailed))
	s.CreateUnknown = s.CreateUnknown || failed ||
		s.Operation != nil && conditionOf(o, typeOperation).Reason == ReasonRecordUnusable
	return s
}

// AsksPerson reports whether its provider says that only a person can tell the outcome of a create.
func AsksPerson(o *unstructured.Unstructured) bool {
	operation, deleting := conditionOf(o, typeOperation), conditionOf(o, typeDeleting)
	return operation.Status == "False" && operation.Reason == ReasonOutcomeUnknown ||
		deleting.Status == "True" && deleting.Reason == ReasonCreateResultUnknown
}

// CreateAwaited reports whether the provider waits because an interrupted create may still be in progress, and whether
// it says until when.
func CreateAwaited(o *unstructured.Unstructured) (awaited, timed bool) {
	resolved := conditionOf(o, typeResolved)
	timed = resolved.Status == "False" && resolved.Reason == ReasonWaitingForCreate
	return timed || conditionOf(o, typeOperation).Reason == ReasonInterrupted, timed
}

// Blocks reports whether an operation prevents a person from settling the create of an object, and from orphaning the
// object. If no time ends the operation, a person may do both as soon as the provider asks for it.
func Blocks(r asyncstate.Run, o *unstructured.Unstructured) bool {
	return r.Type != "" && (!r.Unresolved || !AsksPerson(o))
}

// Until says until when an operation may be in progress.
func Until(r asyncstate.Run) string {
	if r.Unresolved {
		return "its provider has resumed it"
	}
	return text.Stamp(r.Until)
}
