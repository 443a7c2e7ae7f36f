package asyncstate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"syscall"
	"testing"

	pkgerrors "github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
)

// statusless is an error that could have a status of gRPC, and has none.
type statusless struct{ error }

func (statusless) GRPCStatus() *status.Status { return nil }

// brokenPost is an error as package net/http returns it, of a type that it does not
// export.
func brokenPost(text string) error {
	return pkgerrors.Wrap(&url.Error{Op: "Post", URL: "https://cloud", Err: errors.New(text)}, "cannot create")
}

func TestOutcomeUnknown(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Nil":            {reason: "A success is known."},
		"Refused":        {reason: "As with upstream, an error means that nothing was created.", err: errQuota},
		"SaidAndWrapped": {reason: "However it is wrapped.", err: pkgerrors.Wrap(errors.Join(errQuota, asyncstate.ErrOutcomeUnknown), "cannot create"), want: true},
		"TimeRanOut":     {reason: "The client did not wait for the answer.", err: pkgerrors.Wrap(context.DeadlineExceeded, "cannot create"), want: true},
		"Cancelled":      {reason: "Nor here.", err: &url.Error{Op: "Post", URL: "https://cloud", Err: context.Canceled}, want: true},
		"ReadTimedOut":   {reason: "The answer didn't come.", err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, want: true},
		"Timeout":        {reason: "It says that it is one.", err: &url.Error{Op: "Post", URL: "https://cloud", Err: os.ErrDeadlineExceeded}, want: true},
		"Reset":          {reason: "The connection had been made.", err: &url.Error{Op: "Post", URL: "https://cloud", Err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}}, want: true},
		"EOF":            {reason: "It ended before the answer.", err: &url.Error{Op: "Post", URL: "https://cloud", Err: io.EOF}, want: true},
		"HalfAnAnswer":   {reason: "It ended in the middle of it.", err: io.ErrUnexpectedEOF, want: true},
		"ServerClosed":   {reason: "The server closed the connection while the request was sent.", err: brokenPost("net/http: HTTP/1.x transport connection broken: http: server closed idle connection"), want: true},
		"HTTP2Lost":      {reason: "HTTP/2 has errors of its own for that.", err: brokenPost("http2: client connection lost"), want: true},
		"HTTP2GoAway":    {reason: "As above.", err: brokenPost("http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=\"\""), want: true},
		"HTTP2Stream":    {reason: "As above.", err: brokenPost("stream error: stream ID 1; INTERNAL_ERROR; received from peer"), want: true},
		"NotConnected":   {reason: "Nothing was sent.", err: &url.Error{Op: "Post", URL: "https://cloud", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}},
		"NotConnectedAgain": {
			reason: "It was sent on the first connection.",
			err:    fmt.Errorf("tried twice: %w", errors.Join(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, &net.OpError{Op: "read", Err: syscall.ECONNRESET})), want: true,
		},
		"NeverConnected": {reason: "Nothing was sent, twice.", err: errors.Join(&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded})},
		"Statusless":     {reason: "It is an error like any other.", err: statusless{errQuota}},
		"JoinedGRPC":     {reason: "And whatever it is joined with.", err: errors.Join(errQuota, status.Error(codes.DeadlineExceeded, "late")), want: true},
		"SecondGRPC":     {reason: "However many there are.", err: errors.Join(status.Error(codes.NotFound, "no such parent"), status.Error(codes.Unavailable, "gone")), want: true},
		"GRPCAndSaid":    {reason: "The client knows more than the status says.", err: fmt.Errorf("%w: %w", status.Error(codes.AlreadyExists, "it's ours"), asyncstate.ErrOutcomeUnknown), want: true},
		"GRPCAsText":     {reason: "A client that knows that nothing was sent doesn't pass the status on.", err: errors.New(status.Error(codes.Unavailable, "no connection").Error())},
	}

	// Each other status of gRPC is an answer.
	noAnswer := []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Internal}
	for c := codes.OK + 1; c <= codes.Unauthenticated; c++ {
		tc := cases["Statusless"]
		tc.reason, tc.err, tc.want = "Four are what gRPC says in place of an answer.", status.Error(c, "oh"), slices.Contains(noAnswer, c)
		cases["GRPC"+c.String()] = tc
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wants(t, tc.reason, fmt.Sprintf("OutcomeUnknown(%v)", tc.err), tc.want, asyncstate.OutcomeUnknown(tc.err))
		})
	}
}
