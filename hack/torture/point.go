package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// undisturbed is what a point has for a fault if nothing goes wrong.
const undisturbed = "none"

// A point names one life with one fault at one step.
type point struct {
	story  story
	column column
	kind   clientKind
	fault  fault

	// step that the fault strikes at, and what step that is in the undisturbed
	// life, if it is known.
	step int
	want string
}

// name of a point, without the side.
func (p point) name() string {
	parts := []string{p.story.name, string(p.column.mode), string(p.kind), undisturbed}
	if p.step > 0 {
		parts[3] = p.fault.name
		parts = append(parts, strconv.Itoa(p.step))
	}

	return strings.Join(parts, "/")
}

// command that leads this life once more.
func (p point) command(e environment) string {
	c := "go run ./torture -replay " + p.name()
	if p.column.side != graftSide {
		c += " -side " + p.column.side
	}

	if e.lag > 0 {
		c += " -lag " + e.lag.String()
	}

	return fmt.Sprintf("%s -seed %d", c, e.seed)
}

// parse a point's name.
func parse(name, side string, cs []column) (point, error) {
	parts := strings.Split(name, "/")
	if len(parts) < 4 || len(parts) > 5 || (len(parts) == 4) != (parts[3] == undisturbed) {
		return point{}, fmt.Errorf("%q doesn't name a point: it has to look like create/sync/token/crash-after/7, or create/sync/token/%s", name, undisturbed)
	}

	p := point{kind: clientKind(parts[2])}

	i := slices.IndexFunc(stories(), func(s story) bool { return s.name == parts[0] })
	if i < 0 {
		return p, fmt.Errorf("there is no life %q", parts[0])
	}

	p.story = stories()[i]

	if i = slices.IndexFunc(cs, func(c column) bool { return c.side == side && string(c.mode) == parts[1] }); i < 0 {
		return p, fmt.Errorf("there is no mode %q of %q", parts[1], side)
	}

	p.column = cs[i]

	if !slices.Contains(clientKinds(), p.kind) {
		return p, fmt.Errorf("there is no kind of client %q", parts[2])
	}

	if len(parts) == 4 {
		return p, nil
	}

	if i = slices.IndexFunc(faults(), func(f fault) bool { return f.name == parts[3] }); i < 0 {
		return p, fmt.Errorf("there is no fault %q", parts[3])
	}

	p.fault = faults()[i]

	n, err := strconv.Atoi(parts[4])
	if err != nil || n < 1 {
		return p, fmt.Errorf("a step is a number from 1, not %q", parts[4])
	}

	p.step = n

	return p, nil
}
