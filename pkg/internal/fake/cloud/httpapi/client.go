package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// A Client is a client of a cloud that is served over HTTP. It is safe for
// concurrent use.
type Client struct {
	url  string
	http *http.Client
}

// NewClient returns a client of the cloud at a URL.
func NewClient(url string, c *http.Client) *Client { return &Client{url: url, http: c} }

// A Session calls the API with one token, as a cloud.Session does. Beside what that
// returns, its methods return the HTTP client's errors, wrapped.
type Session struct {
	client *Client
	token  string
}

// NewSession logs in. It returns cloud.ErrUnauthenticated if the token is wrong.
func (c *Client) NewSession(ctx context.Context, token string) (*Session, error) {
	s := &Session{client: c, token: token}
	if _, err := s.call(ctx, cloud.OpLogin, request{}); err != nil {
		return nil, err
	}
	return s, nil
}

// Create is that of cloud.Session.
func (s *Session) Create(ctx context.Context, req cloud.CreateRequest) (cloud.Resource, error) {
	return s.one(ctx, cloud.OpCreate, request{Create: req})
}

// Get is that of cloud.Session.
func (s *Session) Get(ctx context.Context, id string) (cloud.Resource, error) {
	return s.one(ctx, cloud.OpGet, request{ID: id})
}

// Update is that of cloud.Session.
func (s *Session) Update(ctx context.Context, id string, properties map[string]string) (cloud.Resource, error) {
	return s.one(ctx, cloud.OpUpdate, request{ID: id, Properties: properties})
}

// Delete is that of cloud.Session.
func (s *Session) Delete(ctx context.Context, id string) error {
	_, err := s.call(ctx, cloud.OpDelete, request{ID: id})
	return err
}

// List is that of cloud.Session.
func (s *Session) List(ctx context.Context, f cloud.Filter) ([]cloud.Resource, error) {
	r, err := s.call(ctx, cloud.OpList, request{Filter: f})
	return r.Resources, err
}

func (s *Session) one(ctx context.Context, op cloud.Op, r request) (cloud.Resource, error) {
	out, err := s.call(ctx, op, r)
	if err != nil {
		return cloud.Resource{}, err
	}
	return out.one()
}

func (s *Session) call(ctx context.Context, op cloud.Op, r request) (response, error) {
	r.Token = s.token
	body, err := json.Marshal(r)
	if err != nil {
		return response{}, fmt.Errorf("cannot call the cloud: %w", err)
	}
	u, err := url.JoinPath(s.client.url, string(op))
	if err != nil {
		return response{}, fmt.Errorf("cannot call the cloud: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, bytes.NewReader(body))
	if err != nil {
		return response{}, fmt.Errorf("cannot call the cloud: %w", err)
	}
	answer, err := s.client.http.Do(req)
	if err != nil {
		return response{}, fmt.Errorf("cannot call the cloud: %w", err)
	}
	defer answer.Body.Close() //nolint:errcheck // It was read.
	if answer.StatusCode != http.StatusOK {
		return response{}, fmt.Errorf("cannot call the cloud: it answered %s", answer.Status)
	}
	var out response
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		return response{}, fmt.Errorf("cannot read the cloud's answer: %w", err)
	}
	return out, out.err()
}
