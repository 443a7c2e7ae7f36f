package asyncstate

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"

	"github.com/crossplane-graft/graft/pkg/internal/creation"
	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// A basis holds the state of an object that a reconcile bases its decisions on. The provider may
// read or write its object in Observe. If the state is another one then, the decisions are out of
// date, and the API server would not refuse the writes that follow: they have the new resource
// version.
type basis struct {
	terms   seam.Terms
	deleted bool

	// name is the external name, create the ID of the last create.
	name, create string

	// stored is the external name on the API server, if it is known.
	stored string
}

func basisOf(ctx context.Context, mg resource.Managed) basis {
	s := creation.Last(mg)
	b := basis{terms: seam.TermsOf(mg), deleted: meta.WasDeleted(mg), name: s.Name, create: s.ID()}
	if session := seam.From(ctx); session.Tracks(mg) {
		b.stored = meta.GetExternalName(session.Base())
	}
	return b
}

// changed reports whether mg was read or written again, and was deleted or has other terms.
func (b basis) changed(mg resource.Managed) bool {
	return b.terms.Changed(mg) || mg.GetResourceVersion() != b.terms.Version && meta.WasDeleted(mg) != b.deleted
}

// createChanged also reports whether it has another external name or another create, or its create
// has ended. A name that it did not have may be one that Observe has learned.
func (b basis) createChanged(mg resource.Managed) bool {
	if mg.GetResourceVersion() == b.terms.Version {
		return false
	}
	is := creation.Last(mg)
	return b.changed(mg) || is.ID() != b.create || creation.Renamed(b.name, is.Name, b.stored)
}
