package crashtest

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"

	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
)

// Transport returns a transport for the process's HTTP client. It serves each request with
// a handler in memory, as one request of the run.
func (p *Process) Transport(cloud http.Handler) http.RoundTripper {
	return transport{process: p, cloud: cloud}
}

type transport struct {
	process *Process
	cloud   http.Handler
}

// RoundTrip serves a request.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.cloud == nil {
		return nil, errors.New(
			"crashtest: Process.Transport was given a nil handler: give it the fake of the external system",
		)
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, errors.Wrap(err, "cannot read the body of the request")
		}
		if err = req.Body.Close(); err != nil {
			return nil, errors.Wrap(err, "cannot close the body of the request")
		}
	}

	// A request may arrive when its caller has given up.
	served := req.Clone(context.WithoutCancel(req.Context()))
	served.RequestURI = req.URL.RequestURI()
	answer := httptest.NewRecorder()
	content := fnv.New64a()
	_, _ = fmt.Fprintf(content, "%s\n%s", req.URL.RawQuery, body) // A hash returns no error.
	q := history.Request{
		Target: history.External, Verb: req.Method, Name: req.URL.Path, Query: req.URL.RawQuery, HTTP: true,
		Content: content.Sum64(),
		Reads:   slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, req.Method),
	}
	q.Writes = !q.Reads
	err := t.process.external(req.Context(), q, func(e *history.Event) error {
		served.Body = io.NopCloser(bytes.NewReader(body))
		t.cloud.ServeHTTP(answer, served)
		e.Outcome.Status = answer.Code
		return nil
	})

	var status httpStatus
	if errors.As(err, &status) {
		answer = httptest.NewRecorder()
		if status == http.StatusTooManyRequests {
			answer.Header().Set("Retry-After", "1")
		}
		answer.Header().Set("Content-Type", "application/json")
		answer.WriteHeader(int(status))
		_, err = fmt.Fprintf(answer, `{"message":"%s (injected)"}`, status)
	}
	if err != nil {
		return nil, err
	}
	resp := answer.Result()
	resp.Request = req
	return resp, nil
}
