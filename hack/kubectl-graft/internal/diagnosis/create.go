package diagnosis

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// MayBeStopped reports whether an object with these annotations may wait for a person.
func MayBeStopped(annotations map[string]string) bool {
	_, unended := unendedCreate(annotations)
	return unended || annotations[AnnotationOperation] != "" || annotations[AnnotationCreateRefused] != ""
}

// unendedCreate returns when a create was announced, and whether annotations say that it has not ended.
func unendedCreate(annotations map[string]string) (time.Time, bool) {
	pending := timeIn(annotations[AnnotationCreatePending])
	return pending, pending.After(timeIn(annotations[annotationCreateSucceeded])) &&
		pending.After(timeIn(annotations[annotationCreateFailed]))
}

// timeIn returns the time that an annotation has, or none if upstream would ignore it.
func timeIn(annotation string) time.Time {
	t, _ := time.Parse(time.RFC3339, annotation)
	return t
}

// CreateRefused reports whether Graft refused the create because an external resource with its name existed.
func CreateRefused(o metav1.Object) bool {
	ends := endsOf(o)
	return o.GetAnnotations()[AnnotationCreateRefused] == cmp.Or(ExternalName(o), string(o.GetUID())) &&
		(ends.Succeeded == "" || timeIn(ends.Failed).After(timeIn(ends.Succeeded)))
}

// recordVersion is the version of the records that this package reads.
const recordVersion = 1

// An Operation of an asynchronous provider.
type Operation struct {
	Type     string      `json:"type"`
	Phase    string      `json:"phase"`
	Attempt  int         `json:"attempt"`
	Token    string      `json:"token,omitempty"`
	Started  metav1.Time `json:"started,omitzero"`
	Deadline metav1.Time `json:"deadline,omitzero"`
}

// A Record of an operation, which an annotation holds.
type Record struct {
	Operation

	Version int          `json:"version"`
	UID     types.UID    `json:"uid"`
	Open    *metav1.Time `json:"open,omitempty"`   // Until then an attempt of another process may be in progress.
	Named   bool         `json:"named,omitempty"`  // The create has set the external name.
	Handle  string       `json:"handle,omitempty"` // The provider resumes the operation by it.

	// Upstream's annotations at the time of the record: the last announcement, and the ends of creates.
	Announcement string `json:"pending,omitempty"`
	EndsBefore   *ends  `json:"announced,omitempty"`
}

// Usable reports whether the record could be read, and is of the object that has it.
func (r *Record) Usable() bool { return r != nil && r.Type != "" }

type ends struct {
	Succeeded string `json:"succeeded,omitempty"`
	Failed    string `json:"failed,omitempty"`
}

func endsOf(o metav1.Object) ends {
	a := o.GetAnnotations()
	return ends{Succeeded: a[annotationCreateSucceeded], Failed: a[annotationCreateFailed]}
}

// Phases of a record, and types of operations.
const (
	phaseRunning = "running"
	phaseUnknown = "unknown"
	phaseFailed  = "failed"
	typeCreate   = "create"
	typeDelete   = "delete"
)

// RecordOf returns the record of an object's operation, or nil.
func RecordOf(o metav1.Object) *Record {
	text, ok := o.GetAnnotations()[AnnotationOperation]
	if !ok {
		return nil
	}
	r := &Record{}
	if json.Unmarshal([]byte(text), r) != nil || r.Version != recordVersion || r.UID != o.GetUID() {
		return &Record{}
	}
	return r
}

// MayRun reports whether the operation may be in progress in some process, or will be: its provider resumes an
// interrupted operation by its handle.
func (r *Record) MayRun(now time.Time) bool {
	if !r.Usable() {
		return false
	}
	resumes := r.Phase == phaseUnknown && r.Handle != ""
	return (r.Phase == phaseRunning || resumes) && now.Before(r.Deadline.Add(endGrace)) ||
		r.Open != nil && now.Before(r.Open.Time)
}

// DeleteFailed reports whether the operation is a delete that failed and waits for its next attempt.
func (r *Record) DeleteFailed(now time.Time) bool {
	return r.Usable() && r.Type == typeDelete && r.Phase == phaseFailed && !r.MayRun(now)
}

// Until returns until when the operation may be in progress.
func (r *Record) Until() time.Time {
	end := r.Deadline.Add(endGrace)
	if r.Open != nil && r.Open.After(end) {
		return r.Open.Time
	}
	return end
}

// endGrace is how long after its deadline an operation may still be in progress. Then its process abandons it.
const endGrace = time.Minute

// CreateAwaited reports whether the provider waits because an interrupted create may still be in progress.
func CreateAwaited(o *unstructured.Unstructured) bool {
	resolved := conditionOf(o, typeResolved)
	return conditionOf(o, typeOperation).Reason == ReasonInterrupted ||
		resolved.Status == "False" && resolved.Reason == ReasonWaitingForCreate
}

const (
	// longestCreate is how long a create without a record may be in progress. Upjet's providers end a reconcile after
	// three minutes, crossplane-runtime after one. The rest is for the last request, and for clocks that differ.
	longestCreate = 5 * time.Minute

	// lastRequest is how long the external system may take to carry out the last request of a process that was replaced.
	lastRequest = time.Minute
)

// CreateMayRun returns until when a create without a record may be in progress: only its announcement shows it. It
// reports whether its provider has said since that it can't determine the result, so that the reconcile has ended.
func CreateMayRun(o *unstructured.Unstructured) (until time.Time, ended bool) {
	pending, unended := unendedCreate(o.GetAnnotations())
	if r := RecordOf(o); !unended || r.Usable() && !r.superseded(o) {
		return time.Time{}, false
	}
	until, synced := pending.Add(longestCreate), conditionOf(o, typeSynced)
	if !strings.HasPrefix(synced.Message, createIncomplete) || synced.LastTransitionTime.Time.Before(pending) {
		return until, false
	}
	if last := synced.LastTransitionTime.Add(lastRequest); last.Before(until) {
		until = last
	}
	return until, true
}

// superseded reports whether a provider without Graft announced a create after the record and was interrupted.
func (r *Record) superseded(o metav1.Object) bool {
	p := o.GetAnnotations()[AnnotationCreatePending]
	if timeIn(p).IsZero() || p == r.Announcement {
		return false
	}
	_, unended := unendedCreate(o.GetAnnotations())
	return unended || r.EndsBefore != nil && *r.EndsBefore == endsOf(o)
}

// settled reports whether another writer has settled the recorded create: a provider without Graft, or a person.
func (r *Record) settled(o metav1.Object) bool {
	p := o.GetAnnotations()[AnnotationCreatePending]
	_, unended := unendedCreate(o.GetAnnotations())

	switch {
	case r.Phase == phaseFailed:
		return false
	case timeIn(p).IsZero():
		return true
	case unended:
		return false
	case r.EndsBefore != nil:
		return *r.EndsBefore != endsOf(o)
	default:
		return p != r.Announcement
	}
}

// CreateUnknown reports whether the outcome of the last create of the object is unknown,
// and only a look at the external system can tell it. It returns when the create began.
// Graft decides in the same way, in pkg/internal/creation. A provider knows more about a record
// that it refuses, and about a create that failed: only a later step than the create may have failed.
func CreateUnknown(o *unstructured.Unstructured, now time.Time) (time.Time, bool) {
	since, unended := unendedCreate(o.GetAnnotations())
	r, operation := RecordOf(o), conditionOf(o, typeOperation)

	switch {
	case r == nil:
		return since, unended || !since.IsZero() && failedUnknown(o)
	case !r.Usable(), operation.Status == "False" && operation.Reason == ReasonRecordUnusable, r.superseded(o):
		return since, true
	case r.Type != typeCreate:
		// An update or delete begins only if the external resource exists.
		return since, false
	case r.settled(o):
		return since, unended
	case r.MayRun(now):
		return r.Started.Time, false
	default:
		deleting := conditionOf(o, typeDeleting)
		asked := operation.Status == "False" && operation.Reason == ReasonOutcomeUnknown ||
			deleting.Status == "True" && deleting.Reason == ReasonCreateResultUnknown
		return r.Started.Time, r.Phase != phaseFailed || r.Named || asked
	}
}

// CreateFailed reports whether the last create failed. Whether it created an external resource may be unknown.
func CreateFailed(o metav1.Object) bool {
	ends, r := endsOf(o), RecordOf(o)
	return timeIn(ends.Failed).After(timeIn(ends.Succeeded)) ||
		r.Usable() && r.Type == typeCreate && r.Phase == phaseFailed
}

// failedUnknown reports whether Synced says that a create without a record failed with an unknown outcome.
func failedUnknown(o *unstructured.Unstructured) bool {
	synced := conditionOf(o, typeSynced)
	return CreateFailed(o) && synced.Status == "False" && strings.Contains(synced.Message, createFailed)
}
