package oracle

import (
	"strings"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
)

// Advice says what usually causes a verdict, and what ends it.
type Advice struct{ Cause, Remedy string }

// facts are the parts of a history that show the cause of a violation.
type facts struct {
	// async says that operations are asynchronous, finder that a Finder was called.
	async, finder bool

	// struck is the request that the last fault struck. read says that it was a call that reads.
	struck *history.Event
	read   bool

	// twice says that one reconcile created twice, again that a name was created twice.
	twice, again bool

	// absent says that a call that reads succeeded between two creates, and did not prevent the second.
	// mistaken says that a read failed, and the same reconcile went on to create.
	absent, mistaken bool

	// looks is the last of the reads between two creates.
	looks string
}

// factsOf a run.
func factsOf(r Run) facts {
	f := facts{again: repeated(r.Final.Created) != ""}
	for _, o := range r.Final.Objects {
		f.async = f.async || o.Async
	}
	creates, reconcile, looks := 0, 0, ""
	failedRead := map[int]bool{}
	for _, e := range r.Events {
		q := e.Request
		switch {
		case e.Kind == history.KindAnswer && q.Target == history.External && isRead(q) && e.Outcome.Status != 404:
			failedRead[e.Reconcile], looks = true, ""
		case e.Kind != history.KindRequest && e.Kind != history.KindArrival:
			continue
		}
		if e.Fault != "" {
			f.struck, f.read = e, q.Target == history.External && isRead(q)
		}
		f.finder = f.finder || q.Verb == "Find"
		switch {
		case q.Target != history.External || e.Kind == history.KindAnswer:
		case created(e):
			creates++
			f.twice = f.twice || creates > 1 && e.Reconcile != 0 && e.Reconcile == reconcile
			f.absent, f.looks = creates > 1 && looks != "", looks
			f.mistaken = f.mistaken || e.Reconcile != 0 && failedRead[e.Reconcile]
			reconcile, looks = e.Reconcile, ""
		case creates > 0 && isRead(q):
			looks = q.String()
		}
	}
	return f
}

func created(e *history.Event) bool {
	for _, f := range e.Effects {
		if f.Created {
			return true
		}
	}
	return false
}

// isRead reports whether a call reads, as far as its name tells.
func isRead(q history.Request) bool {
	name := strings.ToLower(q.Verb)
	for _, prefix := range []string{"get", "list", "describe", "read", "head"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return q.Reads
}

// A rule gives advice about a verdict if it applies.
type rule struct {
	verdict Verdict
	applies func(f facts) bool
	Advice
}

func always(facts) bool { return true }

// rules in order: the first one that applies gives the advice.
func rules() []rule {
	const finder = "Graft: a Finder, with resolve.With; the tracker of an asynchronous provider asks it by itself."
	return []rule{
		{SecondResource, func(f facts) bool { return f.again }, Advice{
			"The external resource was deleted, and created again under the same name.",
			"Update it in place, and create only what Observe says is absent.",
		}},
		{SecondResource, func(f facts) bool { return f.twice }, Advice{
			"One reconcile created twice: the client repeats a request whose answer was lost, or is an error.",
			"Turn retries of requests that are not idempotent off in the client.",
		}},
		{SecondResource, func(f facts) bool { return f.mistaken || f.read }, Advice{
			"An error of a call that reads was taken for \"not found\", and the provider created again.",
			"Return the error from Observe and Find. Only the external system's own \"not found\" means absent.",
		}},
		{SecondResource, func(f facts) bool { return f.absent }, Advice{
			"The provider looked between the two creates, and took the external resource for absent.",
			"Let Observe and Find look for what Create made, for instance by a tag with the UID, on all " +
				"pages. Say unknown, " +
				"not absent, while the external system may show it late.",
		}},
		{SecondResource, func(f facts) bool { return f.async }, Advice{
			"The asynchronous create was forgotten when its process ended, and started again.",
			"Graft: call asyncstate.SetExternalName or SetHandle as soon as the name is known, and give " +
				"the client a Finder.",
		}},
		{SecondResource, always, Advice{
			"The external name was not stored when the process or the answer was lost, and the provider called " +
				"Create again without a look.",
			finder + " Otherwise choose the name before the create.",
		}},
		{SharedResource, always, Advice{
			"Two managed resources have the same external name: it is cut, constant, or not unique, " +
				"\"already exists\" is " +
				"taken for success, or a Finder adopts the external resource of another owner.",
			"Check the owner of an external resource before it is adopted. Graft: reservation.With.",
		}},
		{Leak, func(f facts) bool { return f.mistaken || f.read }, Advice{
			"An error of a call that reads was taken for \"not found\".",
			"Return the error from Observe and Find. Only the external system's own \"not found\" means absent.",
		}},
		{Leak, func(f facts) bool { return f.async }, Advice{
			"The finalizer was removed while an asynchronous create was in progress, or its result was forgotten.",
			"Graft: call asyncstate.SetExternalName as soon as the name is known, and give the client a Finder.",
		}},
		{Leak, always, Advice{
			"The finalizer was removed before the external resource was certainly gone, or a create was forgotten.",
			"Graft: resolve.With, and confirm.With if the external system shows resources late.",
		}},
		{LostName, always, Advice{
			"The external name was set in memory, and the write that should store it failed or did not happen.",
			"Graft's reconciler stores external names as soon as they change. Otherwise return an error until the " +
				"name is stored.",
		}},
		{LostUpdate, always, Advice{
			"Observe says that the external resource is up to date, or Update returns no error although it failed.",
			"Compare every field of the spec in Observe, and return the error of Update.",
		}},
		{LostSecret, always, Advice{
			"Connection details are returned once, by Create or Update, and that answer or the write of " +
				"the secret was lost.",
			"Return connection details from Observe, or set them again if the secret lacks them.",
		}},
		{NeverReady, func(f facts) bool { return f.mistaken }, Advice{
			"An error of a call that reads was taken for \"not found\", and the create that followed can't succeed.",
			"Return the error from Observe and Find.",
		}},
		{NeverReady, always, Advice{
			"An error is taken for the final state, or a state that an interrupted call leaves behind is not handled.",
			"Make Create and Update repeatable, and let Observe decide from the external system alone.",
		}},
		{NeverDeleted, always, Advice{
			"Delete is not called again after it failed, or Observe fails for a resource in the state that Delete " +
				"leaves behind.",
			"Let Delete succeed if there is nothing to delete, and return every other error.",
		}},
		{FinalizerLeft, always, Advice{
			"Observe or Delete returns an error for an external resource that no longer exists, or nothing removes " +
				"a finalizer.",
			"Treat not found as success in Delete, and as absent in Observe.",
		}},
		{ForeignFinalizer, always, Advice{
			"The provider replaces the list of finalizers.",
			"Remove the finalizer that the provider has added, and no other.",
		}},
		{Stopped, func(f facts) bool { return f.async && f.finder }, Advice{
			"The Finder does not say whether the interrupted create succeeded: it says neither found " +
				"nor absent, or fails.",
			"Let Find say absent once the external system would show the resource.",
		}},
		{Stopped, func(f facts) bool { return f.async }, Advice{
			"The process ended during an asynchronous create, and nothing reports whether it succeeded.",
			"Give the external client a Find method (asyncstate.Finder), which the tracker asks, or set " +
				"a handle and be an " +
				"asyncstate.Resumer. If neither is possible, add crashtest.Stopped to Provider.Accept.",
		}},
		{Stopped, func(f facts) bool { return f.finder }, Advice{
			"The Finder does not say whether the interrupted create succeeded: it says neither found " +
				"nor absent, or fails.",
			"Let Find say absent once the external system would show the resource.",
		}},
		{Stopped, always, Advice{
			"Nothing tells the reconciler whether an interrupted create succeeded.",
			finder + " Upstream: WithDeterministicExternalName, if names are chosen " +
				"beforehand. If neither is possible, add crashtest.Stopped to Provider.Accept.",
		}},
		{ActsOnAnothers, always, Advice{
			"The provider does not check whether an external resource is the one of this managed resource.",
			"Graft: reservation.With for managed resources with the same external name. Honour the " +
				"management policies.",
		}},
		{ActsWhilePaused, always, Advice{
			"Something besides the managed reconciler calls the external system, for instance a goroutine of the " +
				"provider.",
			"Check meta.IsPaused before each call.",
		}},
		{HotLoop, always, Advice{
			"Each reconcile changes something, for instance a time in the status, or asks for the next one at once, " +
				"or Observe never says that the external resource is up to date.",
			"Write only values that differ, compare in Observe what the external system returns, and " +
				"return RequeueAfter " +
				"with the poll interval.",
		}},
		{Panicked, always, Advice{
			"A client is used in a state that only a fault brings about, for instance an answer that is nil.",
			"Read the stack, and replay the run.",
		}},
		{Escaped, always, Advice{
			"A goroutine or a wait does not end with its context, or a lock is held while its holder " +
				"waits for an answer.",
			"Pass the context on, and don't hold a lock during a request or a call, or set Provider.Serial.",
		}},
		{InvariantBroken, always, Advice{"See the error.", "Replay the run."}},
	}
}

// Advise returns the advice about a verdict.
func Advise(v Verdict, r Run) Advice {
	f := factsOf(r)
	for _, o := range rules() {
		if o.verdict == v && o.applies(f) {
			return o.Advice
		}
	}
	return Advice{}
}
