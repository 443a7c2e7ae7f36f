package managed

import (
	"fmt"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// WithInitializers sets the initializers, which run before the provider is connected. Other
// than upstream, the Deleting condition says if a managed resource that is being deleted
// can't be initialized. It panics if one of them is nil, also inside an InitializerChain. A
// nil chain is an empty chain.
func WithInitializers(i ...Initializer) ReconcilerOption {
	mustInitialize(i, "")
	return func(r *Reconciler) { r.config.initializer = upstream.InitializerChain(i) }
}

func mustInitialize(chain []Initializer, in string) {
	for n, i := range chain {
		at := fmt.Sprintf("%s%d", in, n+1)
		is.MustNotBeNil(i, fmt.Sprintf("managed.WithInitializers (argument %s)", at))
		if c, ok := i.(upstream.InitializerChain); ok {
			mustInitialize(c, at+".")
		}
	}
}
