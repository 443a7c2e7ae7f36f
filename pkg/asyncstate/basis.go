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
	identity        creation.Identity
	record          string
	deleted, paused bool
	policies        xpv2.ManagementPolicies
}

func basisOf(mg resource.Managed) basis {
	return basis{
		version:  mg.GetResourceVersion(),
		identity: creation.IdentityOf(mg),
		record:   mg.GetAnnotations()[AnnotationKeyOperation],
		deleted:  meta.WasDeleted(mg), paused: meta.IsPaused(mg),

		// A client decodes answers into the same memory.
		policies: slices.Clone(mg.GetManagementPolicies()),
	}
}

// changed reports whether mg was read or written again, and has another basis. It ignores changes
// that a provider makes in memory only.
func (b basis) changed(mg resource.Managed) bool {
	is := basisOf(mg)
	return is.version != b.version && (is.identity != b.identity || is.record != b.record ||
		is.deleted != b.deleted || is.paused != b.paused || !slices.Equal(is.policies, b.policies))
}
