package cloud

import (
	"context"
	"fmt"
	"maps"
)

// A Client calls the cloud's API: a Session does, and one of package httpapi.
type Client interface {
	Create(ctx context.Context, req CreateRequest) (Resource, error)
	Get(ctx context.Context, id string) (Resource, error)
	Update(ctx context.Context, id string, properties map[string]string) (Resource, error)
	Delete(ctx context.Context, id string) error
	List(ctx context.Context, f Filter) ([]Resource, error)
}

// A Session calls the cloud's API with one token. It is safe for concurrent use
// and needs no closing.
//
// Every call honours its context while latency passes, and returns an error that
// wraps one of this package's, the context's, or a hook's.
type Session struct {
	cloud *Cloud
	token string
}

// NewSession logs in. It returns ErrUnauthenticated if the token is wrong.
func (c *Cloud) NewSession(ctx context.Context, token string) (*Session, error) {
	if err := c.call(ctx, Call{Op: OpLogin}, token, func(*Call) error { return nil }); err != nil {
		return nil, err
	}
	return c.Session(token), nil
}

// Session returns a session without logging in. If the token is wrong its calls
// return ErrUnauthenticated.
func (c *Cloud) Session(token string) *Session { return &Session{cloud: c, token: token} }

// Create makes a resource, or returns the one that the request's token made
// before. It returns ErrAlreadyExists if the name asked for is taken,
// ErrTokenReused if the token came with another request, and ErrInvalid if the
// request names no kind.
func (s *Session) Create(ctx context.Context, req CreateRequest) (Resource, error) {
	var out Resource
	call := Call{Op: OpCreate, ID: req.Name, Kind: req.Kind, Owner: req.Owner}
	req.Properties = maps.Clone(req.Properties)

	err := s.cloud.call(ctx, call, s.token, func(call *Call) error {
		r, err := s.cloud.create(req)
		if err != nil {
			return err
		}
		call.ID = r.ID
		out = r.snapshot(s.cloud.state(r))
		return nil
	})
	if err != nil {
		return Resource{}, err
	}
	return out, nil
}

// Get returns a resource. It returns ErrNotFound if there is none of that id, or
// if it isn't visible yet.
func (s *Session) Get(ctx context.Context, id string) (Resource, error) {
	var out Resource

	err := s.cloud.call(ctx, Call{Op: OpGet, ID: id}, s.token, func(*Call) error {
		r, ok := s.cloud.resources[id]
		if !ok || !s.cloud.visible(r) {
			return ErrNotFound
		}
		out = r.snapshot(s.cloud.state(r))
		return nil
	})
	if err != nil {
		return Resource{}, err
	}
	return out, nil
}

// Update replaces the resource's properties; those of the cloud's defaults that
// are missing stay as they are. It returns ErrNotFound if there is no resource of
// that id and ErrDeleting if it is being deleted.
func (s *Session) Update(ctx context.Context, id string, properties map[string]string) (Resource, error) {
	var out Resource
	properties = maps.Clone(properties)

	err := s.cloud.call(ctx, Call{Op: OpUpdate, ID: id}, s.token, func(*Call) error {
		r, ok := s.cloud.resources[id]
		if !ok {
			return ErrNotFound
		}
		if r.deleting {
			return ErrDeleting
		}
		merged := map[string]string{}
		for k := range s.cloud.opts.Defaults {
			merged[k] = r.Properties[k]
		}
		maps.Copy(merged, properties)
		r.Properties = merged
		out = r.snapshot(s.cloud.state(r))
		return nil
	})
	if err != nil {
		return Resource{}, err
	}
	return out, nil
}

// Delete starts the resource's deletion and returns without waiting for its end.
// It does nothing if that has started already. It returns ErrNotFound if there is
// no resource of that id.
func (s *Session) Delete(ctx context.Context, id string) error {
	return s.cloud.call(ctx, Call{Op: OpDelete, ID: id}, s.token, func(*Call) error {
		r, ok := s.cloud.resources[id]
		if !ok {
			return ErrNotFound
		}
		if !r.deleting {
			r.deleting, r.deletedAt = true, s.cloud.clock.Now()
			s.cloud.deleting++
		}
		return nil
	})
}

// List returns the visible resources that the filter selects, in order of their
// ids.
func (s *Session) List(ctx context.Context, f Filter) ([]Resource, error) {
	var out []Resource

	err := s.cloud.call(ctx, Call{Op: OpList, Kind: f.Kind, Owner: f.Owner}, s.token, func(*Call) error {
		out = s.cloud.list(func(r *record) bool { return f.matches(r) && s.cloud.visible(r) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// create needs the lock.
func (c *Cloud) create(req CreateRequest) (*record, error) {
	if req.Kind == "" {
		return nil, fmt.Errorf("%w: a resource needs a kind", ErrInvalid)
	}
	if r := c.byToken(req.Token); r != nil {
		if !r.request.equal(req) {
			return nil, fmt.Errorf("%w: token %q made %s", ErrTokenReused, req.Token, r.ID)
		}
		return r, nil
	}

	id := req.Name
	if id == "" {
		id = c.nextID(req.Kind)
	}

	if _, taken := c.resources[id]; taken {
		return nil, ErrAlreadyExists
	}
	properties := map[string]string{}
	maps.Copy(properties, c.opts.Defaults)
	maps.Copy(properties, req.Properties)

	r := &record{
		Resource: Resource{
			ID:         id,
			Kind:       req.Kind,
			Owner:      req.Owner,
			Endpoint:   id + ".cloud.example.org",
			CreatedAt:  c.clock.Now(),
			Properties: properties,
		},
		request: req,
	}
	c.resources[id] = r
	s := c.stats[req.Owner]
	s.Existing++
	s.Created++
	c.stats[req.Owner] = s
	return r, nil
}
