package crashtest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// undisturbed is the last part of the name of a life without a fault.
const undisturbed = "undisturbed"

// A point is a life with the faults that happen in it, if any.
type point struct {
	life Life
	at   []disturbance
}

// name of the point, and of its subtest.
func (p point) name() string {
	parts := []string{p.life.Name}
	if len(p.at) == 0 {
		parts = append(parts, undisturbed)
	}
	for _, d := range p.at {
		parts = append(parts, d.String())
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

// further returns the points with one more fault in a life that took these steps.
func (p point) further(steps []step, c Cloud) []point {
	var out []point
	for i := p.last(); i < len(steps); i++ {
		for _, f := range faults() {
			if !f.suits(steps[i], c) {
				continue
			}
			d := disturbance{fault: f, step: i + 1}
			if len(p.at) == 0 {
				d.want = steps[i].String()
			}
			out = append(out, p.disturbed(d))
		}
	}
	return out
}

// parsePoint returns the point of a name.
func parsePoint(name string, lives []Life) (point, error) {
	parts := strings.Split(name, "/")
	i := slices.IndexFunc(lives, func(l Life) bool { return l.Name == parts[0] })
	if i < 0 {
		return point{}, errors.Errorf("there is no life %q", parts[0])
	}
	p := point{life: lives[i]}
	if len(parts) == 2 && parts[1] == undisturbed {
		return p, nil
	}
	if len(parts) < 3 || len(parts)%2 == 0 {
		return p, errors.Errorf("%q does not name a life with faults: it has to look like create/crash-after/7", name)
	}

	for rest := parts[1:]; len(rest) > 0; rest = rest[2:] {
		all := faults()
		i := slices.IndexFunc(all, func(f fault) bool { return f.name == rest[0] })
		if i < 0 {
			return p, errors.Errorf("there is no fault %q", rest[0])
		}
		n, err := strconv.Atoi(rest[1])
		if err != nil || n <= p.last() {
			return p, errors.Errorf("%q is not the number of a step from %d", rest[1], p.last()+1)
		}
		p = p.disturbed(disturbance{fault: all[i], step: n})
	}
	return p, nil
}
