package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Judge returns the violations in a run.
func Judge(r Run) []Violation {
	a := read(r.Events)
	out := a.violations
	for _, name := range a.order {
		out = append(out, judgeObject(a, r, name)...)
	}
	out = append(out, secondResource(a, r.Final)...)
	out = append(out, leak(a, r.Final, out)...)
	if a.Met(r.Final) && len(out) == 0 {
		for _, name := range a.order {
			out = append(out, lostUpdate(a, r, name)...)
			out = append(out, lostSecret(a, r, name)...)
		}
		out = append(out, hotLoop(a, r)...)
	}
	return append(out, a.panics...)
}

func one(v Verdict, format string, args ...any) []Violation {
	return []Violation{{Verdict: v, Text: fmt.Sprintf(format, args...)}}
}

// judgeObject judges the final state of a managed resource.
func judgeObject(a *account, r Run, name string) []Violation {
	o, gone := r.Final.object(name), a.Gone(name)
	_, there := r.Final.External[o.External]
	others := unowned(a, r.Final)
	switch {
	case gone && !o.Exists, a.Exempt(name):
		return nil
	case o.Undecided && (gone || !there || !o.Ready):
		return one(Stopped, "%s waits for a person: %s", name, o.Conditions)
	case gone && there:
		return one(NeverDeleted, "%s was deleted and still has finalizers %v: %s", name, o.Finalizers, o.Conditions)
	case gone:
		return one(FinalizerLeft, "%s was deleted and still has finalizers %v, but its external resource is gone: %s",
			name, o.Finalizers, o.Conditions)
	case !o.Exists:
		return one(NeverReady, "%s no longer exists, although the user did not delete it", name)
	case !there && len(others) > 0:
		return one(LostName, "the external name of %s is %q, but there is %s: %s", name, o.External, list(others),
			o.Conditions)
	case !there:
		return one(NeverReady, "%s has no external resource: %s", name, o.Conditions)
	case !o.Ready:
		return one(NeverReady, "%s: %s", name, o.Conditions)
	default:
		return nil
	}
}

// secondResource counts the external resources that were created.
func secondResource(a *account, s State) []Violation {
	n := len(s.Created)
	if n-a.excused <= a.allowed {
		return nil
	}
	what := list(s.Created)
	if again := repeated(s.Created); again != "" {
		what = again + " was deleted and created again"
	}
	return one(SecondResource, "%d external resources were created, not %d: %s", n, a.allowed, what)
}

// repeated returns a name that is listed twice, or "".
func repeated(names []string) string {
	for i, n := range names {
		if slices.Contains(names[:i], n) {
			return n
		}
	}
	return ""
}

// leak looks for external resources without a managed resource. Other verdicts say the same of some.
func leak(a *account, s State, had []Violation) []Violation {
	left := unowned(a, s)
	if len(left) == 0 || len(a.order) > 0 && a.Exempt(a.order[0]) || Has(had, Stopped) || Has(had, LostName) {
		return nil
	}
	return one(Leak, "no managed resource stands for external resource %s", list(left))
}

// unowned returns the external resources that neither a managed resource nor another owner has.
func unowned(a *account, s State) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.External)) {
		_, protected := a.protected[name]
		owns := func(o Object) bool { return o.Exists && o.External == name }
		if !protected && !a.kept[name] && !slices.ContainsFunc(s.Objects, owns) {
			out = append(out, name)
		}
	}
	return out
}

// lostUpdate compares an external resource with its state before the user's change, and with its state
// at the end of the run without a fault.
func lostUpdate(a *account, r Run, name string) []Violation {
	x, o := a.of(name), r.Final.object(name)
	state, judged := r.Final.External[o.External], !x.gone && !o.Fixed
	calm := state
	if r.Calm != nil {
		calm = r.Calm.External[r.Calm.object(name).External]
	}
	switch {
	case a.Exempt(name):
		return nil
	case x.changed && judged && state != "" && state == x.before:
		return one(LostUpdate, "the user changed %s, but its external resource is still %q", name, state)
	case x.back && judged && state != x.before:
		return one(LostUpdate, "the user changed %s back, but its external resource is %q, not %q", name, state,
			x.before)
	case state != calm:
		return one(LostUpdate, "the external resource of %s is %q, but without a fault it is %q", name, state, calm)
	default:
		return nil
	}
}

// lostSecret compares the connection secret with the values of the external system, or with the keys of the run
// without a fault.
func lostSecret(a *account, r Run, name string) []Violation {
	o := r.Final.object(name)
	want := o.Details
	if want == nil && r.Calm != nil {
		want = r.Calm.object(name).Secret
	}
	if a.Gone(name) || a.Exempt(name) || !o.Exists {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		switch got := o.Secret[key]; {
		case got == "" && (want[key] != "" || o.Details != nil):
			return one(LostSecret, "the connection secret of %s has no value for key %q", name, key)
		case o.Details != nil && got != want[key]:
			return one(LostSecret, "the connection secret of %s has an old value for key %q, which the external "+
				"system no longer accepts", name, key)
		}
	}
	return nil
}

// list some names.
func list(names []string) string {
	const most = 5
	if n := len(names); n > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}
