package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
)

const (
	// rateWindow is the time in which reconciles are counted. While a managed resource is as the user wants it, and
	// nothing changes, a process may reconcile it often enough to poll every ten seconds, and a few times more. A
	// provider that waits for something may poll twice a second.
	rateWindow   = 2 * time.Minute
	maxSettled   = 30
	maxUnsettled = 240

	// maxRepeats is how often a call without an effect, or a change that the user did not ask for, may be seen at
	// the end of a run.
	maxRepeats = 2
)

// hotLoop looks for rates of reconciles, calls and changes that are too high.
func hotLoop(a *account, r Run) []Violation {
	if out := reconcileRate(r); len(out) > 0 {
		return out
	}
	if out := endlessChanges(r); len(out) > 0 {
		return out
	}
	if out := endlessRetries(a, r); len(out) > 0 {
		return out
	}
	return futileCalls(a, r)
}

// endlessRetries looks for reconciles that fail or ask for a retry until the end of a run, although each
// managed resource is as the user wants it.
func endlessRetries(a *account, r Run) []Violation {
	retries, last := map[string]int{}, map[string]string{}
	for _, e := range r.atEnd() {
		switch {
		case e.Kind != history.KindReconciled:
		case (e.Outcome.Failed || e.Outcome.Backoff) && !a.Exempt(e.Object):
			retries[e.Object]++
			last[e.Object] = history.Short(e.Text)
		default:
			delete(retries, e.Object)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(retries)) {
		if retries[name] > maxRepeats {
			return one(
				HotLoop, "reconciles of %s are retried for ever, although nothing is left to do: %s", name, last[name],
			)
		}
	}
	return nil
}

// reconcileRate counts the reconciles of each managed resource by each process.
func reconcileRate(r Run) []Violation {
	type key struct {
		process int
		object  string
	}
	times := map[key][]time.Duration{}
	var since time.Duration // The last change of anything.
	settled := false

	for _, e := range r.Events {
		switch e.Kind {
		case history.KindSettled, history.KindUnsettled:
			settled, since = e.Kind == history.KindSettled, e.At
		case history.KindAct, history.KindObject:
			since = e.At
		case history.KindRequest:
			if len(e.Effects) > 0 {
				since = e.At
			}
		case history.KindReconcile:
			k, most := key{e.Process, e.Object}, maxUnsettled
			from := e.At - rateWindow
			if settled {
				from, most = max(from, since), maxSettled
			}
			times[k] = slices.DeleteFunc(
				append(times[k], e.At), func(t time.Duration) bool { return t < e.At-rateWindow },
			)
			n := 0
			for _, t := range times[k] {
				if t >= from {
					n++
				}
			}
			if n > most {
				return one(
					HotLoop, "process %d reconciled %s %d times in %s, although nothing had changed", e.Process,
					e.Object, n,
					(e.At - from).Round(time.Second),
				)
			}
		}
	}
	return nil
}

// atEnd returns the events at the end of the run, when nothing but polls should happen.
func (r Run) atEnd() []*history.Event {
	return slices.DeleteFunc(slices.Clone(r.Events), func(e *history.Event) bool {
		return e.At <= r.End-r.Window || e.Process == 0
	})
}

// late reports whether a time is in the second half of the end of the run: what happens only before it is no loop.
func (r Run) late(t time.Duration) bool { return t > r.End-r.Window/2 }

// endlessChanges counts the changes at the end of a run, which no act of the user asks for.
func endlessChanges(r Run) []Violation {
	changes, fields, last := map[string]int{}, map[string]map[string]bool{}, map[string]time.Duration{}
	for _, e := range r.atEnd() {
		var what string
		switch {
		case e.Kind == history.KindObject && e.Version.Exists:
			what = e.Object
			if fields[what] == nil {
				fields[what] = map[string]bool{}
			}
			for _, f := range e.Version.Fields {
				fields[what][f] = true
			}
		case e.Kind == history.KindRequest && len(e.Effects) > 0:
			what = fmt.Sprintf("external resource %q", e.Effects[0].Name)
		default:
			continue
		}
		changes[what]++
		last[what] = e.At
	}
	for _, what := range slices.Sorted(maps.Keys(changes)) {
		if n := changes[what]; n > maxRepeats && r.late(last[what]) {
			text := fmt.Sprintf("%s changed %d times in the last %s of the run", what, n, r.Window)
			if names := slices.Sorted(maps.Keys(fields[what])); len(names) > 0 {
				text += ": " + list(names)
			}
			return one(HotLoop, "%s", text)
		}
	}
	return nil
}

// futileCalls counts the calls at the end of a run that are made to change something, and change nothing. A POST can
// be a query or a log-in, and so can a call whose name says nothing: it counts if the same call has had an effect at
// another time. Another write counts if it names an external resource, too.
func futileCalls(a *account, r Run) []Violation {
	effective := maps.Clone(r.Effective)
	if effective == nil {
		effective = map[string]bool{}
	}
	for _, e := range r.Events {
		if len(e.Effects) > 0 {
			effective[e.Request.String()] = true
		}
	}
	calls, last := map[string]int{}, map[string]time.Duration{}
	for _, e := range r.atEnd() {
		q := e.Request
		if e.Kind != history.KindRequest || q.Target != history.External || q.Reads || len(e.Effects) > 0 || a.denied {
			continue
		}
		if effective[q.String()] || q.Writes && q.Verb != "POST" && names(q, r.Final) {
			calls[q.String()]++
			last[q.String()] = e.At
		}
	}
	for _, call := range slices.Sorted(maps.Keys(calls)) {
		if n := calls[call]; n > maxRepeats && r.late(last[call]) {
			return one(
				HotLoop, "call %q was made %d times in the last %s of the run, although it changes nothing",
				call, n, r.Window,
			)
		}
	}
	return nil
}

// names reports whether a request names an external resource.
func names(q history.Request, s State) bool {
	if !q.HTTP {
		return true
	}
	for name := range s.External {
		if slices.Contains(strings.Split(q.Name, "/"), name) {
			return true
		}
	}
	return false
}
