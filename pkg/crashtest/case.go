package crashtest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/fault"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
)

// undisturbed is the last part of the name of a case without a fault.
const undisturbed = "undisturbed"

// A testCase is a scenario with the faults that strike in it, if any.
type testCase struct {
	scenario   Scenario
	injections []fault.Injection

	// occurrence counts the same requests of one reconcile, from 0: a page of a list may be the second one.
	occurrence int

	// place of a case with one fault in the order of scenarios and requests.
	place int
}

// name of the case, and of its subtest.
func (c testCase) name() string {
	parts := []string{c.scenario.Name}
	if len(c.injections) == 0 {
		parts = append(parts, undisturbed)
	}
	for _, i := range c.injections {
		parts = append(parts, i.String())
	}
	return strings.Join(parts, "/")
}

// with returns a copy of the case with one more fault.
func (c testCase) with(i fault.Injection) testCase {
	c.injections = append(slices.Clip(c.injections), i)
	return c
}

// last request that a fault strikes, or 0.
func (c testCase) last() int {
	if len(c.injections) == 0 {
		return 0
	}
	return c.injections[len(c.injections)-1].Number
}

// further returns the cases with one more fault in a run with these events.
func (c testCase) further(events []*history.Event, lags bool) (out []testCase) {
	type key struct {
		reconcile int
		request   string
	}
	seen := map[key]int{}
	for _, e := range events {
		if e.Kind != history.KindRequest || e.Number == 0 {
			continue
		}
		k := key{e.Reconcile, e.Request.String()}
		seen[k]++
		for _, f := range fault.All() {
			if e.Number <= c.last() || !f.Suits(e, lags) {
				continue
			}
			next := c.with(fault.Injection{Fault: f, Number: e.Number})
			if next.occurrence = seen[k] - 1; len(c.injections) == 0 {
				next.injections[0].Want = e.Request.String()
			}
			out = append(out, next)
		}
	}
	return out
}

// parseCase returns the case that a pattern names, if it names one.
func parseCase(pattern string, scenarios []Scenario) (c testCase, ok bool) {
	parts := strings.Split(strings.NewReplacer("^", "", "$", "").Replace(pattern), "/")
	i := slices.IndexFunc(scenarios, func(s Scenario) bool { return s.Name == parts[0] })
	if i < 0 || len(parts) < 2 {
		return c, false
	}
	if c.scenario = scenarios[i]; len(parts)%2 == 0 {
		return c, len(parts) == 2 && parts[1] == undisturbed
	}
	for rest := parts[1:]; len(rest) > 0; rest = rest[2:] {
		all := fault.All()
		i := slices.IndexFunc(all, func(f fault.Fault) bool { return f.Name == rest[0] })
		n, err := strconv.Atoi(rest[1])
		if i < 0 || err != nil || n <= c.last() {
			return c, false
		}
		c = c.with(fault.Injection{Fault: all[i], Number: n})
	}
	return c, true
}
