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

// hotLoop looks for rates of reconciles, changes, retries and calls that are too high.
func hotLoop(a *account, r Run) []Violation {
	for _, rate := range []func(*account, Run) []Violation{
		reconcileRate, endlessChanges, endlessRetries, futileCalls,
	} {
		if out := rate(a, r); len(out) > 0 {
			return out
		}
	}
	return nil
}

// repeats returns a key of more than maxRepeats events in the last window of a run, when processes should only poll,
// and their number. A key whose events end in the first half of the window does not count, nor does the key "".
func (r Run) repeats(key func(e *history.Event) string) (what string, n int) {
	count, last := map[string]int{}, map[string]time.Duration{}
	for _, e := range r.Events {
		if e.At <= r.End-r.Window || e.Process == 0 {
			continue
		}
		if k := key(e); k != "" {
			count[k]++
			last[k] = e.At
		}
	}
	for _, k := range slices.Sorted(maps.Keys(count)) {
		if count[k] > maxRepeats && last[k] > r.End-r.Window/2 {
			return k, count[k]
		}
	}
	return "", 0
}

// reconcileRate counts the reconciles of each managed resource by each process.
func reconcileRate(_ *account, r Run) []Violation {
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
		case history.KindReconcile:
			k, most, from := key{e.Process, e.Object}, maxUnsettled, e.At-rateWindow
			times[k] = append(times[k], e.At)
			if settled {
				most, from = maxSettled, max(from, since)
			}
			i := slices.IndexFunc(times[k], func(t time.Duration) bool { return t >= from })
			if n := len(times[k]) - i; n > most {
				return one(HotLoop, "process %d reconciled %s %d times in %s, although nothing had changed", e.Process,
					e.Object, n, (e.At - from).Round(time.Second))
			}
		default:
			if len(e.Effects) > 0 {
				since = e.At
			}
		}
	}
	return nil
}

// endlessChanges counts the changes at the end of a run, which no act of the user asks for.
func endlessChanges(_ *account, r Run) []Violation {
	fields := map[string][]string{}
	what, n := r.repeats(func(e *history.Event) string {
		switch {
		case e.Kind == history.KindObject && e.Version.Exists:
			fields[e.Object] = append(fields[e.Object], e.Version.Fields...)
			return e.Object
		case e.Kind == history.KindRequest && len(e.Effects) > 0:
			return fmt.Sprintf("external resource %q", e.Effects[0].Name)
		default:
			return ""
		}
	})
	if n == 0 {
		return nil
	}
	text := fmt.Sprintf("%s changed %d times in the last %s of the run", what, n, r.Window)
	if names := fields[what]; len(names) > 0 {
		slices.Sort(names)
		text += ": " + list(slices.Compact(names))
	}
	return one(HotLoop, "%s", text)
}

// endlessRetries looks for reconciles that fail or ask for a retry until the end of a run, although each
// managed resource is as the user wants it.
func endlessRetries(a *account, r Run) []Violation {
	last := map[string]*history.Event{}
	for _, e := range r.Events {
		if e.Kind == history.KindReconciled {
			last[e.Object] = e
		}
	}
	retried := func(e *history.Event) bool { return e.Outcome.Failed || e.Outcome.Backoff }
	name, n := r.repeats(func(e *history.Event) string {
		if e.Kind != history.KindReconciled || !retried(e) || !retried(last[e.Object]) || a.Exempt(e.Object) {
			return ""
		}
		return e.Object
	})
	if n == 0 {
		return nil
	}
	return one(HotLoop, "reconciles of %s are retried for ever, although nothing is left to do: %s", name,
		history.Short(last[name].Text))
}

// futileCalls counts the calls at the end of a run that are made to change something, and change nothing. A POST can
// be a query or a log-in, and so can a call whose name says nothing: it counts if the same call has had an effect at
// another time. Another write counts if it names an external resource, too.
func futileCalls(a *account, r Run) []Violation {
	effective := map[string]bool{}
	for _, e := range r.Events {
		effective[e.Request.String()] = effective[e.Request.String()] || len(e.Effects) > 0
	}
	call, n := r.repeats(func(e *history.Event) string {
		q, text := e.Request, e.Request.String()
		if e.Kind != history.KindRequest || q.Target != history.External || q.Reads || len(e.Effects) > 0 || a.denied {
			return ""
		}
		if effective[text] || r.Effective[text] || q.Writes && q.Verb != "POST" && names(q, r.Final) {
			return text
		}
		return ""
	})
	if n == 0 {
		return nil
	}
	return one(HotLoop, "call %q was made %d times in the last %s of the run, although it changes nothing", call, n,
		r.Window)
}

// names reports whether a request names an external resource.
func names(q history.Request, s State) bool {
	parts := strings.Split(q.Name, "/")
	for name := range s.External {
		if slices.Contains(parts, name) {
			return true
		}
	}
	return !q.HTTP
}
