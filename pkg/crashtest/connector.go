package crashtest

import (
	"context"
	"reflect"

	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
)

// Connector makes each call of a connector's clients one request of the run: for an SDK that
// has no HTTP transport, with a fake behind it. A client that is an [asyncstate.Finder] or an
// [asyncstate.Resumer], or has a SearchHint, still is one. A client must not make such requests itself.
func Connector[M resource.Managed](
	p *Process, inner managed.TypedExternalConnector[M],
) managed.TypedExternalConnector[M] {
	return managed.TypedExternalConnectorFn[M](func(ctx context.Context, mg M) (managed.TypedExternalClient[M], error) {
		c, err := inner.Connect(ctx, mg)
		if err != nil {
			return nil, err
		}
		s := steppedClient[M]{TypedExternalClient: c, process: p}
		find, finds := finderOf(s)
		resume, resumes := resumerOf(s)

		// A client with a method that its own client lacks would be taken for a Finder or a Resumer.
		switch {
		case finds && resumes:
			return struct {
				steppedClient[M]
				steppedFinder[M]
				steppedResumer[M]
			}{s, find, resume}, nil
		case finds:
			return struct {
				steppedClient[M]
				steppedFinder[M]
			}{s, find}, nil
		case resumes:
			return struct {
				steppedClient[M]
				steppedResumer[M]
			}{s, resume}, nil
		default:
			return s, nil
		}
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

// SearchHint makes no call. Without one, it is empty, as if the method did not exist.
func (c steppedClient[M]) SearchHint(mg M, a asyncstate.Attempt) string {
	switch h := c.TypedExternalClient.(type) {
	case interface {
		SearchHint(mg M, a asyncstate.Attempt) string
	}:
		return h.SearchHint(mg, a)
	case interface {
		SearchHint(mg resource.Managed, a asyncstate.Attempt) string
	}:
		return h.SearchHint(mg, a)
	default:
		return ""
	}
}

// A steppedFinder makes each Find one step.
type steppedFinder[M resource.Managed] struct {
	process *Process
	find    func(ctx context.Context, mg M, a asyncstate.Attempt) (asyncstate.Finding, error)
}

func finderOf[M resource.Managed](c steppedClient[M]) (steppedFinder[M], bool) {
	switch f := c.TypedExternalClient.(type) {
	case asyncstate.TypedFinder[M]:
		return steppedFinder[M]{c.process, f.Find}, true
	case asyncstate.Finder:
		return steppedFinder[M]{
			c.process, func(ctx context.Context, mg M, a asyncstate.Attempt) (asyncstate.Finding, error) {
				return f.Find(ctx, mg, a)
			},
		}, true
	default:
		return steppedFinder[M]{}, false
	}
}

func (f steppedFinder[M]) Find(ctx context.Context, mg M, a asyncstate.Attempt) (asyncstate.Finding, error) {
	return stepped(ctx, f.process, "Find", mg, func(ctx context.Context, mg M) (asyncstate.Finding, error) {
		return f.find(ctx, mg, a)
	})
}

// A steppedResumer makes each Resume one step.
type steppedResumer[M resource.Managed] struct {
	process *Process
	resume  func(ctx context.Context, mg M, a asyncstate.Attempt) error
}

func resumerOf[M resource.Managed](c steppedClient[M]) (steppedResumer[M], bool) {
	switch r := c.TypedExternalClient.(type) {
	case asyncstate.TypedResumer[M]:
		return steppedResumer[M]{c.process, r.Resume}, true
	case asyncstate.Resumer:
		return steppedResumer[M]{
			c.process, func(ctx context.Context, mg M, a asyncstate.Attempt) error { return r.Resume(ctx, mg, a) },
		}, true
	default:
		return steppedResumer[M]{}, false
	}
}

func (r steppedResumer[M]) Resume(ctx context.Context, mg M, a asyncstate.Attempt) error {
	// It may wait until its own context ends.
	_, err := stepped(ctx, r.process, "Resume", mg, func(_ context.Context, mg M) (struct{}, error) {
		return struct{}{}, r.resume(ctx, mg, a)
	})
	return err
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
	q := history.Request{Target: history.External, Verb: name, Name: mg.GetName()}
	q.Writes = name == "Create" || name == "Update" || name == "Delete"
	q.Reads = name == "Observe" || name == "Find"
	err := p.external(ctx, q, func(*history.Event) error {
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
