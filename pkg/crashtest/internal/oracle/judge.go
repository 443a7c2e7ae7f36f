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
	out := slices.DeleteFunc(slices.Clone(a.violations), func(v Violation) bool { return v.Verdict == Panicked })
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
	for _, v := range a.violations {
		if v.Verdict == Panicked {
			out = append(out, v)
		}
	}
	return out
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
		return one(
			FinalizerLeft, "%s was deleted and still has finalizers %v, but its external resource is gone: %s", name,
			o.Finalizers, o.Conditions,
		)
	case !o.Exists:
		return one(NeverReady, "%s no longer exists, although the user did not delete it", name)
	case !there && len(others) > 0:
		return one(
			LostName, "the external name of %s is %q, but there is %s: %s", name, o.External, list(others),
			o.Conditions,
		)
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
	if len(s.Created)-a.excused <= a.allowed {
		return nil
	}
	text := fmt.Sprintf("%d external resources were created, not %d: %s", len(s.Created), a.allowed, list(s.Created))
	if again := repeated(s.Created); again != "" {
		text = fmt.Sprintf(
			"%d external resources were created, not %d: %s was deleted and created again", len(s.Created), a.allowed,
			again,
		)
	}
	return one(SecondResource, "%s", text)
}

// repeated returns a name that is listed twice, or "".
func repeated(names []string) string {
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			return n
		}
		seen[n] = true
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
	state := r.Final.External[o.External]
	switch {
	case a.Exempt(name):
		return nil
	case x.changed && !x.gone && !o.Fixed && state != "" && state == x.before:
		return one(LostUpdate, "the user changed %s, but its external resource is still %q", name, state)
	case x.back && !x.gone && !o.Fixed && state != x.before:
		return one(
			LostUpdate, "the user changed %s back, but its external resource is %q, not %q", name, state, x.before,
		)
	case r.Calm == nil:
		return nil
	}
	if calm := r.Calm.External[r.Calm.object(name).External]; state != calm {
		return one(
			LostUpdate, "the external resource of %s is %q, but without a fault it is %q", name, state, calm,
		)
	}
	return nil
}

// lostSecret compares the connection secret with the values of the external system, or with the keys of the run
// without a fault.
func lostSecret(a *account, r Run, name string) []Violation {
	o := r.Final.object(name)
	if a.Gone(name) || a.Exempt(name) || !o.Exists {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(o.Details)) {
		switch got, ok := o.Secret[key]; {
		case !ok || got == "":
			return one(LostSecret, "the connection secret of %s has no value for key %q", name, key)
		case got != o.Details[key]:
			return one(
				LostSecret, "the connection secret of %s has an old value for key %q, which the external system "+
					"no longer accepts", name, key,
			)
		}
	}
	if r.Calm == nil || o.Details != nil {
		return nil
	}
	calm := r.Calm.object(name).Secret
	for _, key := range slices.Sorted(maps.Keys(calm)) {
		if calm[key] != "" && o.Secret[key] == "" {
			return one(
				LostSecret, "the connection secret of %s has no value for key %q, which it has without a fault", name,
				key,
			)
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
