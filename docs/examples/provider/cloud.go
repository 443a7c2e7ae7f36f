package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/managed/ratelimit"
)

// How long one request may take. A client without time-outs holds its managed resource until
// the tracker's WithTimeout ends the operation.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = time.Minute
)

// A cloud is a client of the external system's API, for one account.
type cloud struct {
	http  *http.Client
	url   string // of the account
	token string
}

// A database is one in the cloud. The owner is a tag that the provider sets.
type database struct {
	ID    string `json:"id"`
	Owner string `json:"owner"`
	Size  int64  `json:"size"`
}

func (c *cloud) create(ctx context.Context, d database) (id string, err error) {
	err = c.do(ctx, http.MethodPost, "databases", &d, &d)
	return d.ID, err
}

// list returns the databases of an owner.
func (c *cloud) list(ctx context.Context, owner string) (ds []database, err error) {
	err = c.do(ctx, http.MethodGet, "databases?owner="+url.QueryEscape(owner), nil, &ds)
	return ds, err
}

func (c *cloud) get(ctx context.Context, id string) (d database, err error) {
	err = c.do(ctx, http.MethodGet, "databases/"+url.PathEscape(id), nil, &d)
	return d, err
}

func (c *cloud) update(ctx context.Context, d database) error {
	return c.do(ctx, http.MethodPut, "databases/"+url.PathEscape(d.ID), &d, nil)
}

func (c *cloud) delete(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "databases/"+url.PathEscape(id), nil, nil)
}

// do makes one request. It does not retry: Graft does, and knows whether it may.
func (c *cloud) do(ctx context.Context, method, path string, in, out any) error {
	timeout := writeTimeout
	if method == http.MethodGet {
		timeout = readTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+"/"+path, &body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.http.Do(req)
	if err != nil {
		return err // Graft recognises time-outs and broken connections.
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return classify(resp)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		// The request was carried out.
		return fmt.Errorf("%w: cannot read the answer: %w", asyncstate.ErrOutcomeUnknown, err)
	}
	return nil
}

// A statusError is an answer other than success. Graft finds its method StatusCode: 5xx, for
// instance, leaves the outcome of a create unknown.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string   { return http.StatusText(e.code) + ": " + e.message }
func (e *statusError) StatusCode() int { return e.code }

// classify returns the error for an answer, with the class that says what Graft does.
func classify(resp *http.Response) error {
	message, _ := io.ReadAll(io.LimitReader(resp.Body, 1024)) // Without secrets: users see it.
	err := &statusError{code: resp.StatusCode, message: strings.TrimSpace(string(message))}
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return ratelimit.Throttled(err, time.Duration(after)*time.Second)
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return ratelimit.Terminal(err) // The same spec is refused again.
	default:
		return err
	}
}
