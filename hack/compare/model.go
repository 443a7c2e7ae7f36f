package main

import (
	"fmt"
	"slices"
)

// The model is a straight line through the figures for the smallest and the largest number of
// managed resources.
const (
	modelResources = 100_000
	modelKinds     = 2_000
)

func modelled() []string { return []string{"heap", "provider-cpu", "api-server-cpu"} }

// addModel adds the line, and its figures for the sizes in between and for many more.
func (r *results) addModel() {
	few, many := slices.Min(r.Sizes), slices.Max(r.Sizes)
	for _, side := range sides() {
		for _, measure := range modelled() {
			low := r.figure(fmt.Sprintf("steady/%d/%s/%s", few, side, measure))
			high := r.figure(fmt.Sprintf("steady/%d/%s/%s", many, side, measure))
			if low == nil || high == nil || few == many {
				continue
			}

			// What doesn't grow by more than it varies can be less for many.
			each := max(0, high.median()-low.median()) / float64(many-few)
			r.add(fmt.Sprintf("model/each/%s/%s", side, measure), "thousandths", 1000*each)
			r.add(fmt.Sprintf("model/none/%s/%s", side, measure), low.Unit, max(0, low.median()-each*float64(few)))
			for _, n := range append(slices.Clone(r.Sizes), modelResources) {
				r.add(fmt.Sprintf("model/%d/%s/%s", n, side, measure), low.Unit, low.median()+each*float64(n-few))
			}
		}

		informer := "bench/IdleWatch/OnAKindOfItsOwn/ControllerRuntime/"
		heap, stack := r.figure(informer+"heap-KB/watch"), r.figure(informer+"stack-KB/watch")
		controller := r.figure("controller/" + side + "/memory")
		if heap != nil && stack != nil && controller != nil {
			each := heap.median() + stack.median() + controller.median()
			r.add("model/each-kind/"+side+"/memory", "KB", each)
			r.add(fmt.Sprintf("model/%d-kinds/%s/memory", modelKinds, side), "MB", modelKinds*each/1000)
		}
	}
	for _, measure := range modelled()[1:] {
		u, g := r.figure("model/each/upstream/"+measure), r.figure("model/each/graft/"+measure)
		if u != nil && g != nil {
			r.add("model/each/write/"+measure, "ms", u.median()-g.median())
		}
	}
}
