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
//   - a patch may postpone a write that is not of status.
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
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
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
	if o.GetUID() != s.base.GetUID() {
		return nil
	}
	version := o.GetResourceVersion()
	if !OlderThan(version, s.base.GetResourceVersion()) && s.histories.get(o).fresh(version) {
		if version != s.base.GetResourceVersion() {
			s.setBase(clone(o), false)
		}
		return nil
	}
	if !s.known {
		if err := s.reread(ctx); err != nil {
			return err
		}
	}
	move(o, clone(s.base))
	return nil
}

// Update writes an object without its status.
func (c *Client) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return From(ctx).write(ctx, o, updateObject, func() error { return c.Client.Update(ctx, o, opts...) })
}

// Patch patches an object.
func (c *Client) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return From(ctx).write(ctx, o, patchObject, func() error { return c.Client.Patch(ctx, o, p, opts...) })
}

// Apply applies a configuration, of this object perhaps.
func (c *Client) Apply(ctx context.Context, ac runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return From(ctx).apply(ctx, func() error { return c.Client.Apply(ctx, ac, opts...) })
}

// A writeKind is a kind of request that writes an object.
type writeKind int

const (
	updateObject writeKind = iota
	patchObject
	updateStatus
	updateStatusAlways // also if nothing changes
	patchStatus
	patchConditions // with conditions in memory
	writeOther      // of something else than the object
)

// write makes a request that writes o. It is changed if o is the object of this session.
func (s *Session) write(ctx context.Context, o client.Object, kind writeKind, request func() error) error {
	if !s.named(o) {
		return request()
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()

	switch {
	case !s.Tracks(o), kind == writeOther, kind == updateObject && o.GetResourceVersion() == "":
		return s.passThrough(o, request)
	case kind == updateObject:
		return s.update(ctx, o, request)
	case kind == patchObject:
		return s.patch(ctx, o, request)
	case kind == updateStatus, kind == updateStatusAlways:
		return s.updateStatus(ctx, o, kind == updateStatusAlways, request)
	default:
		return s.patchStatus(ctx, o, kind == patchConditions, request)
	}
}

// apply makes a request with an apply configuration, which may be of any object.
func (s *Session) apply(ctx context.Context, request func() error) error {
	if s == nil {
		return request()
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	return s.passThrough(nil, request)
}

// update writes the object of this session without its status.
func (s *Session) update(ctx context.Context, o client.Object, request func() error) error {
	for _, p := range slices.Backward(s.patches) {
		if p.Write != nil {
			p.Write(ctx, s, o)
		}
	}
	stored, postponed := s.bound(ctx, o)
	if postponed {
		return nil
	}
	kept, before, known := s.kind.keepStatus(o), o.GetResourceVersion(), s.Knows(o)
	if err := request(); err != nil {
		return err
	}
	if o.GetResourceVersion() == before {
		// Nothing changed, or nothing was meant to (a dry run).
		s.kind.moveStatus(o, kept)
		return nil
	}

	// With the status subresource, an update stores no status: the API server still has the status
	// of base. Without it, the update has stored the status in memory. The client decodes the answer
	// into the object in memory, so only an answer with the status of base is certain.
	server := clone(o)
	if known {
		known = s.kind.statusEqual(server, s.base)
		s.kind.moveStatus(server, clone(s.base))
	}
	s.kind.moveStatus(o, kept)
	s.noteWrite(server, known)
	s.histories.stored(server)
	s.nothingToStore(server)
	stored(server)
	return nil
}

// patch writes the object of this session with a patch.
func (s *Session) patch(ctx context.Context, o client.Object, request func() error) error {
	stored, postponed := s.bound(ctx, o)
	if postponed {
		return nil
	}
	if err := request(); err != nil {
		return err
	}
	stored(o)
	s.NoteDirectWrite(o)
	return nil
}

// bound asks the patch that bounds writes whether a write of o is postponed. stored tells it the answer.
func (s *Session) bound(ctx context.Context, o client.Object) (stored func(server client.Object), postponed bool) {
	for _, p := range s.patches {
		if p.Bound != nil {
			if stored, postponed = p.Bound(ctx, s, o); stored != nil || postponed {
				return stored, postponed
			}
		}
	}
	return func(client.Object) {}, false
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
