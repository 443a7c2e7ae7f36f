package crashtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// A Verdict is how a life ended that should have ended otherwise.
type Verdict string

const (
	// SecondResource says that the provider created an external resource twice.
	SecondResource Verdict = "second external resource"

	// Leak says that an external resource exists that no managed resource stands for.
	Leak Verdict = "leak"

	// LostName says that the managed resource does not have the name of its external
	// resource.
	LostName Verdict = "lost name"

	// LostUpdate says that the external resource is not as the spec says.
	LostUpdate Verdict = "lost update"

	// NeverReady says that a managed resource doesn't become ready.
	NeverReady Verdict = "never ready"

	// NeverDeleted says that a managed resource that was deleted is still there, and so is
	// its external resource.
	NeverDeleted Verdict = "never deleted"

	// FinalizerLeft says that a managed resource that was deleted is still there, although
	// its external resource is gone.
	FinalizerLeft Verdict = "finalizer left"

	// Stopped says that the provider waits until a person determines the outcome of a
	// create.
	Stopped Verdict = "stopped"

	// ActsOnAnothers says that the provider changed or deleted an external resource of
	// another owner, or one that the user wants to keep.
	ActsOnAnothers Verdict = "acts on another's"

	// ActsWhilePaused says that the provider changed the external system for a managed
	// resource that is paused.
	ActsWhilePaused Verdict = "acts while paused"

	// HotLoop says that the provider doesn't come to rest.
	HotLoop Verdict = "hot loop"

	// Panicked says that a reconcile panicked, or a step on a goroutine of the provider.
	Panicked Verdict = "panic"

	// Escaped says that a goroutine, lock or timer of the provider outlives its process.
	Escaped Verdict = "escape"

	// InvariantBroken says that [Provider.Invariant] returned an error.
	InvariantBroken Verdict = "invariant broken"
)

// An explanation says what usually causes a verdict, and what ends it.
type explanation struct {
	verdict Verdict
	cause   string
	remedy  string
}

// explanations returns the explanations of all verdicts.
func explanations() []explanation {
	return []explanation{
		{
			SecondResource,
			"The external name was not stored when the process or the answer was lost, and the provider called " +
				"Create again.",
			"Graft: WithCreateResolver with a Finder, or WithAsync with asyncstate.SetExternalName. Otherwise " +
				"choose the name before the create.",
		},
		{
			Leak,
			"The finalizer was removed before the external resource was certainly gone, or a create was forgotten.",
			"Graft: WithCreateResolver, and WithDeletionConfirmation if the external system shows resources late.",
		},
		{
			LostName,
			"The external name was set in memory, and the write that should store it failed or did not happen.",
			"Graft's reconciler stores external names as soon as they change. Otherwise return an error until the " +
				"name is stored.",
		},
		{
			LostUpdate,
			"Observe says that the external resource is up to date, or Update returns no error although it failed.",
			"Compare every field of the spec in Observe, and return the error of Update.",
		},
		{
			NeverReady,
			"An error is taken for the final state, or a state that an interrupted call leaves behind is not handled.",
			"Make Create and Update repeatable, and let Observe decide from the external system alone.",
		},
		{
			NeverDeleted,
			"Delete is not called again after it failed, or Observe fails for a resource in the state that Delete " +
				"leaves behind.",
			"Let Delete succeed if there is nothing to delete, and return every other error.",
		},
		{
			FinalizerLeft,
			"Observe or Delete returns an error for an external resource that no longer exists, or nothing removes " +
				"a finalizer.",
			"Treat not found as success in Delete, and as absent in Observe.",
		},
		{
			Stopped,
			"Nothing tells the reconciler whether an interrupted create succeeded.",
			"Graft: WithCreateResolver with a Finder. Upstream: WithDeterministicExternalName, if names are chosen " +
				"beforehand. If neither is possible, add crashtest.Stopped to Provider.Accept.",
		},
		{
			ActsOnAnothers,
			"The provider does not check whether an external resource is the one of this managed resource.",
			"Graft: WithExternalNameReservation for managed resources with the same external name. Honour the " +
				"management policies.",
		},
		{
			ActsWhilePaused,
			"Something besides the managed reconciler calls the external system, for instance a goroutine of the " +
				"provider.",
			"Check meta.IsPaused before each call.",
		},
		{
			HotLoop,
			"Each reconcile changes something, for instance a time in the status, or asks for the next one at once, " +
				"or Observe never says that the external resource is up to date.",
			"Write only values that differ, and return RequeueAfter with the poll interval.",
		},
		{
			Panicked,
			"A client is used in a state that only a fault brings about, for instance an answer that is nil.",
			"Read the stack, and replay the life.",
		},
		{
			Escaped,
			"A goroutine does not end with its context, or a lock is held while its holder waits for an answer.",
			"Pass the context on, and don't hold a lock during a request or a call, or set Provider.Serial.",
		},
		{
			InvariantBroken,
			"See the error.",
			"Replay the life.",
		},
	}
}

func (v Verdict) explanation() explanation {
	all := explanations()
	return all[slices.IndexFunc(all, func(e explanation) bool { return e.verdict == v })]
}

// A finding is the result of one life.
type finding struct {
	violations []Violation
	steps      []step

	// struck are the steps that the faults struck at: a fault waits for one that suits it.
	struck []int

	// reconciles from the last fault, or the first act, to the last change.
	reconciles int

	// states of the external resources of the managed resources, at the end.
	states [2]string

	// err says that the life could not be led.
	err error
}

func (f *finding) add(v Verdict, format string, a ...any) {
	f.violations = append(f.violations, Violation{Verdict: v, Text: fmt.Sprintf(format, a...)})
}

func (f *finding) has(v Verdict) bool {
	return slices.ContainsFunc(f.violations, func(o Violation) bool { return o.Verdict == v })
}

// verdicts of the finding in one text.
func (f *finding) verdicts() string {
	var out []string
	for _, v := range f.violations {
		if !slices.Contains(out, string(v.Verdict)) {
			out = append(out, string(v.Verdict))
		}
	}
	return strings.Join(out, ", ")
}

// A vainCall is a call of a process that should change something.
type vainCall struct {
	process int
	call    string
}

func (c vainCall) compare(o vainCall) int {
	return cmp.Or(cmp.Compare(c.process, o.process), cmp.Compare(c.call, o.call))
}

// judge how a life ended.
func (w *world) judge(l Life) finding {
	f := finding{
		steps: w.steps, struck: w.plan.struck, violations: w.violations,
		reconciles: max(w.reconcilesChanged-w.reconcilesStruck, 0),
	}
	now := w.snapshot()

	for i := range w.wants {
		if w.wants[i].exists {
			w.judgeObject(&f, i, now.exists)
		}
	}
	made := now.made - w.foreign
	if made-w.excused > max(l.Creates, 1) {
		f.add(
			SecondResource,
			"%d external resources were created, not %d: %s",
			made,
			max(l.Creates, 1),
			strings.Join(w.cloud.Made()[w.foreign:], ", "),
		)
	}

	if left := w.unowned(now.exists); len(left) > 0 && !w.waits(0) && !f.has(Stopped) && !f.has(LostName) {
		f.add(Leak, "no managed resource stands for external resource %s", strings.Join(left, ", "))
	}

	if w.right() && len(f.violations) == 0 {
		for i, state := range f.states {
			if text := w.lostUpdate(i, state, w.calm); text != "" {
				f.add(LostUpdate, "%s", text)
			}
		}
		if w.restless != "" {
			f.add(HotLoop, "%s", w.restless)
		}
		for _, c := range slices.SortedFunc(maps.Keys(w.vain), vainCall.compare) {
			if n := w.vain[c]; n > maxVain && w.restless == "" {
				f.add(HotLoop, "call %q was made %d times, although it changes nothing", c.call, n)
			}
		}
	}

	if len(w.plan.at) == 0 {
		for i := range f.violations {
			f.violations[i].Text += w.advice(f.violations[i])
		}
	}

	for _, p := range w.panics {
		f.add(Panicked, "%s", p)
		break
	}

	if w.subject.invariant != nil {
		o := w.seen[0]
		if o != nil {
			o, _ = o.DeepCopyObject().(client.Object)
		}
		if err := w.subject.invariant(o, w.cloud); err != nil {
			f.add(InvariantBroken, "%v", err)
		}
	}
	return f
}

// advice names the usual cause in the test if a life without a fault ends badly.
func (w *world) advice(v Violation) string {
	starting, reconciling := false, false
	for _, p := range w.alive() {
		p.locked(func() {
			starting = starting || !p.started
			for _, it := range p.items {
				reconciling = reconciling || it.active
			}
		})
	}
	said := v.Text
	failure := ""
	if !strings.Contains(said, w.failure) {
		failure = " The last reconcile failed: " + short(w.failure) + "."
		said += failure
	}

	switch {
	case v.Verdict == Leak && withoutDeletionPolicy(w.subject.object) && !hasSchema(w.subject.crds, w.kind):
		return failure + " Upstream's reconciler orphans the external resource of an object without a deletion " +
			"policy: set spec.deletionPolicy in Provider.Object, or Provider.CRDs, which have defaults."
	case v.Verdict == LostName && !w.subject.named:
		return failure + " If the provider keeps the name elsewhere than in its annotation, set Provider.Name."
	case v.Verdict == LostUpdate:
		return failure + " Provider.Change has to show in Cloud.Exists."
	case v.Verdict != NeverReady:
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
	case !w.called:
		return failure + " No call to the external system was a step: use Process.Transport, Process.Step or Connector."
	default:
		return failure
	}
}

// judgeObject judges one managed resource.
func (w *world) judgeObject(f *finding, i int, exists map[string]string) {
	want, o := w.wants[i], w.seen[i]
	name := ""
	if o != nil {
		name = w.subject.name(o)
	}
	_, there := exists[name]
	f.states[i] = exists[name]

	switch {
	case want.gone && o == nil, w.waits(i):
	case o != nil && unknownCreate(o) && (want.gone || !there || !ready(o)):
		f.add(Stopped, "%s waits for a person: %s", o.GetName(), conditions(o))
	case want.gone && there:
		f.add(
			NeverDeleted,
			"%s was deleted and still has finalizers %v: %s",
			o.GetName(),
			o.GetFinalizers(),
			conditions(o),
		)
	case want.gone:
		f.add(
			FinalizerLeft,
			"%s was deleted and still has finalizers %v, but its external resource is gone: %s",
			o.GetName(),
			o.GetFinalizers(),
			conditions(o),
		)
	case o == nil:
		f.add(NeverReady, "%s no longer exists, although the user did not delete it", w.key(i).Name)
	case !there && len(w.unowned(exists)) > 0:
		f.add(
			LostName,
			"the external name of %s is %q, but there is %s: %s",
			o.GetName(),
			name,
			strings.Join(w.unowned(exists), ", "),
			conditions(o),
		)
	case !there:
		f.add(NeverReady, "%s has no external resource: %s", o.GetName(), conditions(o))
	case !ready(o):
		f.add(NeverReady, "%s: %s", o.GetName(), conditions(o))
	}
}

// lostUpdate compares the state of an external resource with the spec and with the life without a fault. It is
// empty if no update is lost.
func (w *world) lostUpdate(i int, state string, calm *finding) string {
	e := w.edited
	switch {
	case w.waits(i):
		return ""
	case i == 0 && e != nil && state != "" && e.state == state && !w.wants[i].gone && mayUpdate(w.seen[i]):
		return fmt.Sprintf("the user changed %s, but its external resource is still %q", w.key(i).Name, state)
	case calm != nil && state != calm.states[i]:
		return fmt.Sprintf(
			"the external resource of %s is %q, but without a fault it is %q", w.key(i).Name, state, calm.states[i],
		)
	default:
		return ""
	}
}

// updated reports whether no update is lost so far. Only the last act ends in the state of the life without a fault.
func (w *world) updated() bool {
	w.mu.Lock()
	ends := w.last && len(w.pending) == 0
	w.mu.Unlock()
	var calm *finding
	if ends {
		calm = w.calm
	}
	exists := w.cloud.Exists()
	for i, o := range w.seen {
		state := ""
		if o != nil {
			state = exists[w.subject.name(o)]
		}
		if w.lostUpdate(i, state, calm) != "" {
			return false
		}
	}
	return true
}

// unowned returns the external resources that no managed resource stands for, and that no
// other owner has.
func (w *world) unowned(exists map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(exists)) {
		_, guarded := w.guards[name]
		guarded = guarded || w.kept[name]
		owns := func(o client.Object) bool { return o != nil && w.subject.name(o) == name }
		if !guarded && !slices.ContainsFunc(w.seen[:], owns) {
			out = append(out, name)
		}
	}
	return out
}

// A condition of a managed resource.
type condition struct{ kind, status, reason, message string }

func conditionsOf(o client.Object) []condition {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil
	}
	list, _, err := unstructured.NestedSlice(content, "status", "conditions")
	if err != nil {
		return nil
	}
	var out []condition
	for _, e := range list {
		c, ok := e.(map[string]any)
		if !ok {
			continue
		}
		field := func(name string) string {
			s, _ := c[name].(string)
			return s
		}
		out = append(out, condition{field("type"), field("status"), field("reason"), field("message")})
	}
	return out
}

// ready reports whether an object says that it is ready and synced. One of a kind without
// conditions is.
func ready(o client.Object) bool {
	cs := conditionsOf(o)
	isReady := len(cs) == 0
	for _, c := range cs {
		isReady = isReady || c.kind == "Ready" && c.status == "True"
		if c.kind == "Synced" && c.status != "True" {
			return false
		}
	}
	return isReady
}

// unknownCreate reports whether the reconciler waits for the outcome of a create.
func unknownCreate(o client.Object) bool {
	return meta.ExternalCreateIncomplete(o) || slices.ContainsFunc(conditionsOf(o), func(c condition) bool {
		return c.kind == string(asyncstate.TypeOperation) && c.reason == string(asyncstate.ReasonOutcomeUnknown)
	})
}

func conditions(o client.Object) string {
	var out []string
	for _, c := range conditionsOf(o) {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s=%s/%s %s", c.kind, c.status, c.reason, c.message)))
	}
	if len(out) == 0 {
		return "it has no conditions"
	}
	return strings.Join(out, ", ")
}
