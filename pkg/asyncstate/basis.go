package asyncstate

import (
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
)

// A basis is what the decisions of a reconcile are based on. The provider may read or write its
// object in Observe. If that shows another basis, the decisions from before are out of date, and
// the API server would not refuse the writes that follow: they have the new resource version.
type basis struct {
	version         string
	deleted, paused bool
	policies        xpv2.ManagementPolicies

	// name is the external name, create the ID of the last create.
	name, create string
}

func basisOf(mg resource.Managed) basis {
	s, _ := creation.Of(mg)
	return basis{
		version: mg.GetResourceVersion(),
		deleted: meta.WasDeleted(mg), paused: meta.IsPaused(mg),

		// A client decodes answers into the same memory.
		policies: slices.Clone(mg.GetManagementPolicies()),
		name:     s.Name, create: s.ID(),
	}
}

// changed reports whether mg was read or written again, and was deleted or paused, or has other
// management policies.
func (b basis) changed(mg resource.Managed) bool {
	is := basisOf(mg)
	return is.version != b.version &&
		(is.deleted != b.deleted || is.paused != b.paused || !slices.Equal(is.policies, b.policies))
}

// createChanged also reports whether it has another external name or another create, or its create
// has ended. A name that it did not have may be one that Observe has learned.
func (b basis) createChanged(mg resource.Managed) bool {
	is := basisOf(mg)
	return b.changed(mg) || is.version != b.version &&
		(is.create != b.create || is.name != b.name && is.name != "" && b.name != "")
}
