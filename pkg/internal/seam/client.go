package seam

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Client is the client seam: the client of the inner reconciler. It changes only requests
// for the reconciled object:
//
//   - the first Get opens the session, and a later one is never older than the session's
//     own writes;
//   - status in memory survives an Update, whose answer has the stored status;
//   - a status write includes the conditions of the patches, and is skipped if it would
//     change nothing. If the API server refuses it, it is retried without them;
//   - with BoundContested, a write that only changes contested fields back is postponed
//     once another writer has changed them back several times.
//
// All other requests go to the client below unchanged. A Client is safe for concurrent use
// if the client below is, also within one reconcile: requests for the reconciled object run
// one at a time.
type Client struct {
	client.Client
}

// NewClient returns a client seam over c.
func NewClient(c client.Client) *Client { return &Client{Client: c} }

// Get reads an object.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	s := From(ctx)
	if s == nil || key != s.key {
		return c.Client.Get(ctx, key, o, opts...)
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release(ctx)
	if !s.tracksForm(o) {
		return c.Client.Get(ctx, key, o, opts...)
	}
	if err := c.Client.Get(ctx, key, o, opts...); err != nil {
		if IsGone(err) {
			s.noteGone()
			s.histories.store.Forget(key)
		}
		return err
	}

	if s.base == nil || s.unopened {
		return s.open(ctx, o)
	}
	written := s.histories.get(o).version
	switch {
	case o.GetUID() != s.base.GetUID():
	case OlderThan(o.GetResourceVersion(), written) && OlderThan(s.base.GetResourceVersion(), written):
		// The reconcile has written the object in another form, or applied it.
		s.partial = true
		fallthrough
	case OlderThan(o.GetResourceVersion(), s.base.GetResourceVersion()):
		if err := s.complete(ctx); err != nil {
			return err
		}
		move(o, clone(s.base))
	case o.GetResourceVersion() != s.base.GetResourceVersion():
		s.setBase(clone(o), false)
	}
	return nil
}

// Update writes an object without its status.
func (c *Client) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	s := From(ctx)
	if !s.named(o) {
		return c.Client.Update(ctx, o, opts...)
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release(ctx)

	if !s.Tracks(o) || o.GetResourceVersion() == "" {
		return s.passThrough(o, func() error { return c.Client.Update(ctx, o, opts...) })
	}

	for _, p := range slices.Backward(s.patches) {
		if p.Write != nil {
			p.Write(s.acquired(ctx), s, o)
		}
	}

	was, postponed := s.boundContested(s.acquired(ctx), o)
	if postponed {
		return nil
	}
	kept, before := s.kind.keepStatus(o), o.GetResourceVersion()
	if err := c.Client.Update(ctx, o, opts...); err != nil {
		return err
	}
	if o.GetResourceVersion() == before {
		// Nothing changed, or nothing was meant to (a dry run).
		s.kind.moveStatus(o, kept)
		return nil
	}

	// With the status subresource, an update stores no status: the API server still has the status
	// of base. Without it, the update has stored the status in memory. The client decodes the answer
	// into the object in memory, so only an answer with the status of base is certain. After
	// another one, a stale read in this reconcile is replaced by a read from the API server.
	server := clone(o)
	exact := s.exact && before == s.base.GetResourceVersion()
	if exact {
		exact = s.kind.statusEqual(server, s.base)
		s.kind.moveStatus(server, clone(s.base))
	}
	s.kind.moveStatus(o, kept)
	s.noteWrite(server, exact)
	s.partial = !exact
	s.histories.stored(server)
	s.nothingToStore(server)
	s.wroteFields(was, server)
	return nil
}

// Patch patches an object.
func (c *Client) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	s := From(ctx)
	if !s.named(o) {
		return c.Client.Patch(ctx, o, p, opts...)
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release(ctx)

	if !s.Tracks(o) {
		return s.passThrough(o, func() error { return c.Client.Patch(ctx, o, p, opts...) })
	}

	was, postponed := s.boundContested(s.acquired(ctx), o)
	if postponed {
		return nil
	}
	if err := c.Client.Patch(ctx, o, p, opts...); err != nil {
		return err
	}
	s.wroteFields(was, o)
	s.NoteDirectWrite(o)
	return nil
}

// Apply applies a configuration.
func (c *Client) Apply(ctx context.Context, ac runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	s := From(ctx)
	if !s.applies(ac) {
		return c.Client.Apply(ctx, ac, opts...)
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release(ctx)

	if err := c.Client.Apply(ctx, ac, opts...); err != nil {
		return err
	}
	s.applied(ac)
	return nil
}

// Status returns a writer for status.
func (c *Client) Status() client.SubResourceWriter {
	return &statusWriter{SubResourceWriter: c.Client.Status()}
}

// SubResource returns a client for a subresource.
func (c *Client) SubResource(name string) client.SubResourceClient {
	sc := c.Client.SubResource(name)
	if name != "status" {
		return sc
	}
	return &statusClient{SubResourceReader: sc, statusWriter: statusWriter{SubResourceWriter: sc}}
}
