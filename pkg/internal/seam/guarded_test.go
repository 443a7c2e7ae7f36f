package seam

import (
	"testing"

	"github.com/pkg/errors"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPermanent(t *testing.T) {
	gr := schema.GroupResource{Resource: "buckets"}

	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"NoStatus":      {reason: "The CRD must be changed first.", err: ErrNoStatus, want: true},
		"NotFound":      {reason: "An object that is gone does not come back.", err: kerrors.NewNotFound(gr, "b"), want: true},
		"Invalid":       {reason: "The same content is refused again.", err: kerrors.NewInvalid(schema.GroupKind{}, "b", nil), want: true},
		"Forbidden":     {reason: "An administrator must grant the permission first.", err: kerrors.NewForbidden(gr, "b", nil), want: true},
		"BadRequest":    {reason: "The same request is refused again.", err: kerrors.NewBadRequest("no"), want: true},
		"NotSupported":  {reason: "The API server does not serve this verb.", err: kerrors.NewMethodNotSupported(gr, "patch"), want: true},
		"TooLarge":      {reason: "The object does not become smaller.", err: kerrors.NewRequestEntityTooLargeError("no"), want: true},
		"MediaType":     {reason: "The API server does not read this encoding.", err: kerrors.NewGenericServerResponse(415, "patch", gr, "b", "", 0, true), want: true},
		"NotAcceptable": {reason: "The API server does not write this encoding.", err: kerrors.NewGenericServerResponse(406, "patch", gr, "b", "", 0, true), want: true},
		"Wrapped":       {reason: "What the error is wrapped in does not matter.", err: errors.Wrap(kerrors.NewForbidden(gr, "b", nil), "cannot patch"), want: true},
		"Conflict":      {reason: "The next read may be newer.", err: kerrors.NewConflict(gr, "b", nil)},
		"TooMany":       {reason: "The API server may have time later.", err: kerrors.NewTooManyRequests("later", 1)},
		"ServerTimeout": {reason: "The API server may be faster later.", err: kerrors.NewServerTimeout(gr, "patch", 1)},
		"InternalError": {reason: "A webhook that failed may be back later.", err: kerrors.NewInternalError(errors.New("webhook"))},
		"Unauthorized":  {reason: "A token is renewed.", err: kerrors.NewUnauthorized("expired")},
		"NoAnswer":      {reason: "The network may be back later.", err: errors.New("connection refused")},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, "Permanent(...)", tc.want, Permanent(tc.err))
		})
	}
}
