package crashtest

import (
	"context"
	"reflect"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// Connector makes each call of a connector's clients one step of the life: for an SDK that
// has no HTTP transport, with a fake behind it. A client that is an [asyncstate.Finder]
// still is one. A client must not make such steps itself.
func Connector[M resource.Managed](
	p *Process, inner managed.TypedExternalConnector[M],
) managed.TypedExternalConnector[M] {
	return managed.TypedExternalConnectorFn[M](func(ctx context.Context, mg M) (managed.TypedExternalClient[M], error) {
		c, err := inner.Connect(ctx, mg)
		if err != nil {
			return nil, err
		}
		s := steppedClient[M]{TypedExternalClient: c, process: p}
		if f, ok := c.(asyncstate.TypedFinder[M]); ok {
			return steppedFinder[M]{steppedClient: s, finder: f}, nil
		}
		return s, nil
	})
}

type steppedClient[M resource.Managed] struct {
	managed.TypedExternalClient[M]

	process *Process
}

func (c steppedClient[M]) Observe(ctx context.Context, mg M) (managed.ExternalObservation, error) {
	return stepped(ctx, c.process, "Observe", mg, c.TypedExternalClient.Observe)
}

func (c steppedClient[M]) Create(ctx context.Context, mg M) (managed.ExternalCreation, error) {
	return stepped(ctx, c.process, "Create", mg, c.TypedExternalClient.Create)
}

func (c steppedClient[M]) Update(ctx context.Context, mg M) (managed.ExternalUpdate, error) {
	return stepped(ctx, c.process, "Update", mg, c.TypedExternalClient.Update)
}

func (c steppedClient[M]) Delete(ctx context.Context, mg M) (managed.ExternalDelete, error) {
	return stepped(ctx, c.process, "Delete", mg, c.TypedExternalClient.Delete)
}

type steppedFinder[M resource.Managed] struct {
	steppedClient[M]

	finder asyncstate.TypedFinder[M]
}

func (c steppedFinder[M]) Find(ctx context.Context, mg M, a asyncstate.Attempt) (asyncstate.Finding, error) {
	return stepped(ctx, c.process, "Find", mg, func(ctx context.Context, mg M) (asyncstate.Finding, error) {
		return c.finder.Find(ctx, mg, a)
	})
}

// stepped makes a call on a copy of the managed resource, because a caller whose answer is
// lost does not see the changes either. One that gets an error of the client's own does.
func stepped[M resource.Managed, R any](
	ctx context.Context, p *Process, name string, mg M, call func(context.Context, M) (R, error),
) (R, error) {
	var out, none R
	copied, ok := mg.DeepCopyObject().(M)
	if !ok {
		copied = mg
	}
	var failed, answer error
	err := p.call(ctx, name+" "+mg.GetName(), name != "Observe" && name != "Find", func() error {
		out, failed = call(context.WithoutCancel(ctx), copied)
		answer = errors.WithStack(failed) // Unlike some errors, it can be compared.
		return answer
	})
	if !errors.Is(err, answer) {
		return none, err
	}
	reflect.ValueOf(mg).Elem().Set(reflect.ValueOf(copied).Elem())
	return out, failed
}
