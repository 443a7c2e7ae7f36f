package resolve

import (
	"context"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// FindWithConnector returns a Finder that connects to the external system, calls Find of the
// external client, which must implement asyncstate.Finder, and disconnects. Pass the
// provider's own connector, not a connector that wraps it. It panics if c is nil.
func FindWithConnector(c managed.ExternalConnector) asyncstate.Finder {
	layer.MustBeConnector(c, "resolve.FindWithConnector")
	return findWith(c)
}

// FindWithTypedConnector is FindWithConnector for a connector of one type of
// managed resource, whose clients implement asyncstate.TypedFinder of that type, or
// asyncstate.Finder.
func FindWithTypedConnector[M resource.Managed](c managed.TypedExternalConnector[M]) asyncstate.Finder {
	layer.MustBeConnector(c, "resolve.FindWithTypedConnector")
	return findWith(c)
}

func findWith[M resource.Managed](c managed.TypedExternalConnector[M]) asyncstate.Finder {
	return asyncstate.FinderFn(
		func(ctx context.Context, o resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
			mg, err := layer.As[M](o)
			if err != nil {
				return asyncstate.Finding{}, err
			}
			ec, err := c.Connect(ctx, mg)
			if err != nil {
				return asyncstate.Finding{}, errors.Wrap(err, "cannot connect")
			}
			if d, ok := c.(interface {
				Disconnect(ctx context.Context) error
			}); ok {
				// A failed disconnect, here and below, does not change the result.
				defer func() { _ = d.Disconnect(ctx) }()
			}

			if ec == nil {
				return asyncstate.Finding{}, errors.New("the external connector returned neither a client nor an error")
			}
			defer func() { _ = ec.Disconnect(ctx) }()

			switch f := ec.(type) {
			case asyncstate.TypedFinder[M]:
				return f.Find(ctx, mg, a)
			case asyncstate.Finder:
				return f.Find(ctx, mg, a)
			default:
				return asyncstate.Finding{}, errors.Errorf(
					"%T can't look for external resources: implement asyncstate.Finder, or leave With out",
					ec,
				)
			}
		},
	)
}
