package seam

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// statusWriter is the part of the client seam that writes status.
type statusWriter struct {
	client.SubResourceWriter
}

// statusClient is statusWriter for callers of SubResource("status").
type statusClient struct {
	client.SubResourceReader
	statusWriter
}

// Update writes the status of an object, unless that is known to change
// nothing.
func (w *statusWriter) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	s := From(ctx)
	if !s.Tracks(o) || len(opts) > 0 {
		err := w.SubResourceWriter.Update(ctx, o, opts...)
		if err == nil {
			s.passed(o)
		}

		return err
	}

	s.statusWritten = true

	for _, p := range s.patches {
		if p.Status != nil {
			p.Status(ctx, s, o)
		}
	}

	if s.statusUnchanged(o) {
		return nil
	}

	exact := s.exact && o.GetResourceVersion() == s.base.GetResourceVersion()

	if err := w.SubResourceWriter.Update(ctx, o); err != nil {
		s.doubt(s.base, err)
		return err
	}

	if !exact {
		s.wrote(clone(o), false)
		return nil
	}

	// Only status was written: what else is in memory may not be on the API
	// server.
	server := clone(s.base)
	server.SetResourceVersion(o.GetResourceVersion())
	s.kind.moveStatus(server, clone(o))
	s.wrote(server, true)

	return nil
}

// Patch patches the status of an object.
func (w *statusWriter) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	s := From(ctx)
	if !s.Tracks(o) {
		err := w.SubResourceWriter.Patch(ctx, o, p, opts...)
		if err == nil {
			s.passed(o)
		}

		return err
	}

	if err := w.SubResourceWriter.Patch(ctx, o, p, opts...); err != nil {
		s.doubt(s.base, err)
		return err
	}

	s.Written(o)

	return nil
}

// statusUnchanged reports whether writing o's status is known to change nothing.
// That takes more than being equal to what was read: a cached read may be older
// than our own last write, in which case the API server has something else, and
// would have refused the write and so caused another try.
func (s *Session) statusUnchanged(o client.Object) bool {
	return !s.options.WriteUnchangedStatus &&
		s.exact && o.GetResourceVersion() == s.base.GetResourceVersion() &&
		s.kind.statusEqual(o, s.base)
}
