package oracle

import (
	"slices"
	"strings"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
)

// Advice says what usually causes a verdict, and what ends it.
type Advice struct{ Cause, Remedy string }

// A fact about a history shows the cause of a violation.
type fact int

const (
	// always is a fact.
	always fact = iota

	// isAsync: operations are asynchronous. hasFinder: a Finder was called.
	isAsync
	hasFinder

	// twice: one reconcile created twice. again: a name was created twice.
	twice
	again

	// absent: a call that reads succeeded between two creates, and did not prevent the second. mistaken: a read failed,
	// and the same reconcile went on to create. misread: that, or the last fault struck a call that reads.
	absent
	mistaken
	misread
)

// factsOf a run.
func factsOf(r Run) map[fact]bool {
	f := map[fact]bool{always: true, again: repeated(r.Final.Created) != ""}
	for _, o := range r.Final.Objects {
		f[isAsync] = f[isAsync] || o.Async
	}
	creates, reconcile, looked, readStruck := 0, 0, false, false
	failedRead := map[int]bool{}
	for _, e := range r.Events {
		q := e.Request
		called := e.Kind == history.KindRequest || e.Kind == history.KindArrival
		if called && e.Fault != "" {
			readStruck = q.Target == history.External && isRead(q)
		}
		switch {
		case q.Target != history.External:
		case e.Kind == history.KindAnswer && isRead(q) && e.Outcome.Status != 404:
			failedRead[e.Reconcile], looked = true, false
		case !called:
		case slices.ContainsFunc(e.Effects, func(o history.Effect) bool { return o.Created }):
			creates++
			f[twice] = f[twice] || creates > 1 && e.Reconcile != 0 && e.Reconcile == reconcile
			f[absent] = creates > 1 && looked
			f[mistaken] = f[mistaken] || e.Reconcile != 0 && failedRead[e.Reconcile]
			reconcile, looked = e.Reconcile, false
		case isRead(q):
			looked = looked || creates > 0
		}
		f[hasFinder] = f[hasFinder] || called && q.Verb == "Find"
	}
	f[misread] = f[mistaken] || readStruck
	return f
}

// isRead reports whether a call reads, as far as its name tells.
func isRead(q history.Request) bool {
	name := strings.ToLower(q.Verb)
	reads := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return q.Reads || slices.ContainsFunc([]string{"get", "list", "describe", "read", "head"}, reads)
}

// A rule gives advice about a verdict if a fact holds.
type rule struct {
	verdict Verdict
	fact    fact
	Advice
}

// rules in order: the first one whose fact holds gives the advice.
func rules() []rule {
	const (
		finder    = "Graft: a Finder, with resolve.With; the tracker of an asynchronous provider asks it by itself."
		readError = "Return the error from Observe and Find. Only the external system's own \"not found\" means absent."
		accept    = " If neither is possible, add crashtest.Stopped to Provider.Accept."
	)
	return []rule{
		{SecondResource, again, Advice{
			"The external resource was deleted, and created again under the same name.",
			"Update it in place, and create only what Observe says is absent.",
		}},
		{SecondResource, twice, Advice{
			"One reconcile created twice: the client repeats a request whose answer was lost, or is an error.",
			"Turn retries of requests that are not idempotent off in the client.",
		}},
		{SecondResource, misread, Advice{
			"An error of a call that reads was taken for \"not found\", and the provider created again.", readError,
		}},
		{SecondResource, absent, Advice{
			"The provider looked between the two creates, and took the external resource for absent.",
			"Let Observe and Find look for what Create made, for instance by a tag with the UID, on all pages. Say " +
				"unknown, not absent, while the external system may show it late.",
		}},
		{SecondResource, isAsync, Advice{
			"The asynchronous create was forgotten when its process ended, and started again.",
			"Graft: call asyncstate.SetExternalName or SetHandle as soon as the name is known, and give the client a " +
				"Finder.",
		}},
		{SecondResource, always, Advice{
			"The external name was not stored when the process or the answer was lost, and the provider called " +
				"Create again without a look.",
			finder + " Otherwise choose the name before the create.",
		}},
		{SharedResource, always, Advice{
			"Two managed resources have the same external name: it is cut, constant, or not unique, \"already " +
				"exists\" is taken for success, or a Finder adopts the external resource of another owner.",
			"Check the owner of an external resource before it is adopted. Graft: reservation.With.",
		}},
		{Leak, misread, Advice{"An error of a call that reads was taken for \"not found\".", readError}},
		{Leak, isAsync, Advice{
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
			"Connection details are returned once, by Create or Update, and that answer or the write of the secret " +
				"was lost.",
			"Return connection details from Observe, or set them again if the secret lacks them.",
		}},
		{NeverReady, mistaken, Advice{
			"An error of a call that reads was taken for \"not found\", and the create that followed can't succeed.",
			readError,
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
		{Stopped, hasFinder, Advice{
			"The Finder does not say whether the interrupted create succeeded: it says neither found nor absent, or " +
				"fails.",
			"Let Find say absent once the external system would show the resource.",
		}},
		{Stopped, isAsync, Advice{
			"The process ended during an asynchronous create, and nothing reports whether it succeeded.",
			"Give the external client a Find method (asyncstate.Finder), which the tracker asks, or set a handle and " +
				"be an asyncstate.Resumer." + accept,
		}},
		{Stopped, always, Advice{
			"Nothing tells the reconciler whether an interrupted create succeeded.",
			finder + " Upstream: WithDeterministicExternalName, if names are chosen beforehand." + accept,
		}},
		{ActsOnAnothers, always, Advice{
			"The provider does not check whether an external resource is the one of this managed resource.",
			"Graft: reservation.With for managed resources with the same external name. Honour the management policies.",
		}},
		{ActsWhilePaused, always, Advice{
			"Something besides the managed reconciler calls the external system, for instance a goroutine of the " +
				"provider.",
			"Check meta.IsPaused before each call.",
		}},
		{HotLoop, always, Advice{
			"Each reconcile changes something, for instance a time in the status, or asks for the next one at once, " +
				"or Observe never says that the external resource is up to date.",
			"Write only values that differ, compare in Observe what the external system returns, and return " +
				"RequeueAfter with the poll interval.",
		}},
		{Panicked, always, Advice{
			"A client is used in a state that only a fault brings about, for instance an answer that is nil.",
			"Read the stack, and replay the run.",
		}},
		{Escaped, always, Advice{
			"A goroutine or a wait does not end with its context, or a lock is held while its holder waits for an " +
				"answer.",
			"Pass the context on, and don't hold a lock during a request or a call, or set Provider.Serial.",
		}},
		{InvariantBroken, always, Advice{"See the error.", "Replay the run."}},
	}
}

// Advise returns the advice about a verdict.
func Advise(v Verdict, r Run) Advice {
	facts := factsOf(r)
	for _, o := range rules() {
		if o.verdict == v && facts[o.fact] {
			return o.Advice
		}
	}
	return Advice{}
}
