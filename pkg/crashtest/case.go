package crashtest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"

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
func (c testCase) further(events []*history.Event, cloud Cloud) (out []testCase) {
	type key struct {
		reconcile int
		request   string
	}
	seen := map[key]int{}
	_, lags := cloud.(Lagging)
	for _, e := range events {
		if e.Kind != history.KindRequest || e.Number == 0 {
			continue
		}
		k := key{e.Reconcile, e.Request.String()}
		seen[k]++
		if e.Number <= c.last() {
			continue
		}
		for _, f := range fault.All() {
			if !f.Suits(e, lags) {
				continue
			}
			i := fault.Injection{Fault: f, Number: e.Number}
			if len(c.injections) == 0 {
				i.Want = e.Request.String()
			}
			next := c.with(i)
			next.occurrence = seen[k] - 1
			out = append(out, next)
		}
	}
	return out
}

// parseCase returns the case of a name.
func parseCase(name string, scenarios []Scenario) (testCase, error) {
	parts := strings.Split(name, "/")
	i := slices.IndexFunc(scenarios, func(s Scenario) bool { return s.Name == parts[0] })
	if i < 0 {
		return testCase{}, errors.Errorf("there is no scenario %q", parts[0])
	}
	c := testCase{scenario: scenarios[i]}
	if len(parts) == 2 && parts[1] == undisturbed {
		return c, nil
	}
	if len(parts) < 3 || len(parts)%2 == 0 {
		return c, errors.Errorf("%q does not name a case with faults: it has to look like create/crash-after/7", name)
	}

	for rest := parts[1:]; len(rest) > 0; rest = rest[2:] {
		all := fault.All()
		i := slices.IndexFunc(all, func(f fault.Fault) bool { return f.Name == rest[0] })
		if i < 0 {
			return c, errors.Errorf("there is no fault %q", rest[0])
		}
		n, err := strconv.Atoi(rest[1])
		if err != nil || n <= c.last() {
			return c, errors.Errorf("%q is not the number of a request from %d", rest[1], c.last()+1)
		}
		c = c.with(fault.Injection{Fault: all[i], Number: n})
	}
	return c, nil
}
