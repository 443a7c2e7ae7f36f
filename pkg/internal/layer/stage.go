package layer

import "slices"

// A Stage is a place in the order of layers, from upstream to the provider. Inside a stage no two layers depend on
// each other.
type Stage int

// The stages. Upstream calls the first one, the last one calls the provider.
const (
	// Admission decides whether a reconcile begins, and reports errors of the external system.
	Admission Stage = iota

	// Escape removes a managed resource whose deletion is blocked.
	Escape

	// Reporting writes the results of the stages below to status.
	Reporting

	// Outcome stores the outcome of a create, which a stage below may change.
	Outcome

	// Identity decides whose the external resource is.
	Identity

	// Doubt confirms or rejects the observations of the stages below.
	Doubt

	// Absence decides when an external resource that is not found does not exist.
	Absence

	// Names stores annotations that any stage below sets.
	Names

	// Last is the last thing to do before a call that changes the external resource.
	Last

	// Guard makes no call for a managed resource that has changed.
	Guard

	// Answer reads the provider's own errors.
	Answer

	// Provider calls the provider.
	Provider
)

// Staged is a layer at its stage.
type Staged struct {
	Stage Stage
	New   New
}

// New returns a layer that calls next. It panics if the layer cannot work with its parts.
type New func(p Parts, next External) Layer

// Build the layers of a reconciler, which end at innermost. It also returns the External of the first one. Layers of
// one stage are in the order given.
func Build(p Parts, staged []Staged, innermost External) (External, []Layer) {
	ordered := slices.Clone(staged)
	slices.SortStableFunc(ordered, func(a, b Staged) int { return int(a.Stage - b.Stage) })
	next, layers := innermost, make([]Layer, len(ordered))
	for i, s := range slices.Backward(ordered) {
		layers[i] = s.New(p, next)
		if layers[i].External != nil {
			next = layers[i].External
		}
	}
	return next, layers
}
