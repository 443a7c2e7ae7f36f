package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// undisturbed is what a point has for a fault if nothing goes wrong.
const undisturbed = "none"

// A point names one life with the faults that happen in it, if any.
type point struct {
	story  story
	column column
	kind   clientKind

	// at is in the order of the steps.
	at []disturbance
}

// A disturbance is a fault at one step, or at the next that suits it: after a first
// fault, upstream's retries wait at random, and a life has not always the same steps.
type disturbance struct {
	fault fault

	// step that the fault strikes at, counted from 1, and what step that is
	// without any fault, if it is known.
	step int
	want string
}

// name of a point, without the side.
func (p point) name() string {
	parts := []string{p.story.name, string(p.column.mode), string(p.kind)}
	if len(p.at) == 0 {
		parts = append(parts, undisturbed)
	}
	for _, d := range p.at {
		parts = append(parts, d.fault.name, strconv.Itoa(d.step))
	}
	return strings.Join(parts, "/")
}

// disturbed returns a copy of the point with one more fault.
func (p point) disturbed(d disturbance) point {
	p.at = append(slices.Clip(p.at), d)
	return p
}

// last step that a fault strikes at, or 0.
func (p point) last() int {
	if len(p.at) == 0 {
		return 0
	}
	return p.at[len(p.at)-1].step
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
	if len(parts) < 4 || (len(parts)%2 == 0) != (len(parts) == 4 && parts[3] == undisturbed) {
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
	for rest := parts[3:]; len(rest) > 1; rest = rest[2:] {
		if i = slices.IndexFunc(faults(), func(f fault) bool { return f.name == rest[0] }); i < 0 {
			return p, fmt.Errorf("there is no fault %q", rest[0])
		}
		n, err := strconv.Atoi(rest[1])
		if err != nil || n <= p.last() {
			return p, fmt.Errorf("a step is a number from %d, not %q", p.last()+1, rest[1])
		}
		p = p.disturbed(disturbance{fault: faults()[i], step: n})
	}
	return p, nil
}
