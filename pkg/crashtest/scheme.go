package crashtest

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// copyScheme returns a scheme with the same kinds. A provider may add kinds to the scheme of
// its manager, so lives can't share one.
func copyScheme(s *runtime.Scheme) *runtime.Scheme {
	out := runtime.NewScheme()
	for gvk := range s.AllKnownTypes() {
		if o, err := s.New(gvk); err == nil {
			if unversioned, _ := s.IsUnversioned(o); unversioned {
				out.AddUnversionedTypes(gvk.GroupVersion(), o)
				continue
			}
			out.AddKnownTypeWithName(gvk, o)
		}
	}
	_ = out.SetVersionPriority(s.PrioritizedVersionsAllGroups()...)
	return out
}

// zero clears an object.
func zero(o client.Object) { reflect.ValueOf(o).Elem().SetZero() }
