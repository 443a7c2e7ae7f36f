package watchtest

import (
	"context"
	"io"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// Config returns how to reach the API without a network.
func (a *API) Config() *rest.Config {
	return &rest.Config{
		Host:          "http://api.example.org",
		Transport:     &transport{handler: a},
		QPS:           -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}
}

// A transport hands requests to a handler in memory.
type transport struct{ handler http.Handler }

// RoundTrip returns as soon as the handler has written a header.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	pr, pw := io.Pipe()
	w := &response{header: make(http.Header), body: pw, ready: make(chan struct{})}
	go func() {
		defer w.end()
		if r.Body != nil {
			defer r.Body.Close() //nolint:errcheck // It was read, or isn't needed.
		}
		t.handler.ServeHTTP(w, r.WithContext(ctx))
	}()
	select {
	case <-w.ready:
	case <-ctx.Done():
		cancel()
		_ = pr.Close()
		return nil, r.Context().Err()
	}
	if w.broken != nil {
		cancel()
		return nil, w.broken
	}

	// A request that is cancelled ends the body, as it does on a connection.
	stop := context.AfterFunc(ctx, func() { _ = pw.CloseWithError(context.Cause(ctx)) })
	return &http.Response{
		Status: http.StatusText(w.code), StatusCode: w.code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Request: r, ContentLength: -1,
		Body: &body{PipeReader: pr, done: func() { stop(); cancel() }},
	}, nil
}

// A body tells the handler when its reader is done.
type body struct {
	*io.PipeReader

	done func()
}

func (b *body) Close() error {
	err := b.PipeReader.Close()
	b.done()
	return err
}

// A response is the writer that handlers get.
type response struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	ready  chan struct{}
	code   int
	broken error
}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(code int) {
	w.once.Do(func() {
		w.code = code
		close(w.ready)
	})
}

func (w *response) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

func (w *response) fail(err error) {
	w.once.Do(func() {
		w.broken = err
		close(w.ready)
	})
}

func (w *response) end() {
	w.WriteHeader(http.StatusOK)
	_ = w.body.Close()
}
