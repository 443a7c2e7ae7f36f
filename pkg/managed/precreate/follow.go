package precreate

import (
	"maps"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// follow takes over the changes of seen, a copy that the provider has written in Observe. Otherwise
// the API server would refuse upstream's next write. annotations and labels are those before Observe.
func follow(c *layer.Call, seen resource.Managed, annotations, labels map[string]string) {
	was, is := c.Managed.GetResourceVersion(), seen.GetResourceVersion()
	if is == was || seam.OlderThan(is, was) {
		return
	}
	c.NoteDirectWrite(seen)
	if follows(c.Managed, seen) {
		c.Managed.SetAnnotations(merged(c.Managed.GetAnnotations(), annotations, seen.GetAnnotations()))
		c.Managed.SetLabels(merged(c.Managed.GetLabels(), labels, seen.GetLabels()))
		c.Managed.SetResourceVersion(is)
	}
}

// follows reports whether mg may take over a write of its copy that the provider made in
// Observe, of status for instance. The inputs of upstream's decisions must be unchanged.
func follows(mg, written resource.Managed) bool {
	return mg.GetGeneration() == written.GetGeneration() && meta.WasDeleted(mg) == meta.WasDeleted(written) &&
		meta.IsPaused(mg) == meta.IsPaused(written) &&
		creation.IdentityOf(mg) == creation.IdentityOf(written) &&
		equality.Semantic.DeepEqual([]any{
			mg.GetFinalizers(), mg.GetOwnerReferences(),
		}, []any{written.GetFinalizers(), written.GetOwnerReferences()})
}

// merged returns m with the differences between two maps applied.
func merged(m, from, to map[string]string) map[string]string {
	out := maps.Clone(m)
	for k := range from {
		if _, ok := to[k]; !ok {
			delete(out, k)
		}
	}
	for k, v := range to {
		if was, ok := from[k]; !ok || was != v {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}
