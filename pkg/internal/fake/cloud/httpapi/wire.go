package httpapi

import (
	"fmt"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// request is the body of every request. The path says which operation it is for,
// and that which fields matter.
type request struct {
	Token      string              `json:"token,omitempty"`
	ID         string              `json:"id,omitempty"`
	Create     cloud.CreateRequest `json:"create,omitzero"`
	Properties map[string]string   `json:"properties,omitempty"`
	Filter     cloud.Filter        `json:"filter,omitzero"`
}

// response is the body of every response.
type response struct {
	Resources []cloud.Resource `json:"resources,omitempty"`

	// Error is what the operation failed with, Reason which of the cloud's
	// errors that is, if any.
	Error  string `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// known are the errors that keep their identity.
func known() []error {
	return []error{
		cloud.ErrNotFound, cloud.ErrAlreadyExists, cloud.ErrDeleting,
		cloud.ErrTokenReused, cloud.ErrInvalid, cloud.ErrUnauthenticated,
	}
}

// failed is the response to what failed.
func failed(err error) response {
	out := response{Error: err.Error()}
	for _, k := range known() {
		if errors.Is(err, k) {
			out.Reason = k.Error()
		}
	}
	return out
}

// err returns what the operation failed with, if it did.
func (r response) err() error {
	if r.Error == "" {
		return nil
	}
	for _, k := range known() {
		if r.Reason == k.Error() {
			return remoteError{text: r.Error, reason: k}
		}
	}
	return remoteError{text: r.Error}
}

// one returns the only resource.
func (r response) one() (cloud.Resource, error) {
	if len(r.Resources) != 1 {
		return cloud.Resource{}, fmt.Errorf("the cloud answered with %d resources instead of one", len(r.Resources))
	}
	return r.Resources[0], nil
}

// A remoteError is an error of the cloud as its client gets it.
type remoteError struct {
	text   string
	reason error
}

func (e remoteError) Error() string { return e.text }

func (e remoteError) Unwrap() error { return e.reason }
