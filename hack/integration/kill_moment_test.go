//go:build integration

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud/httpapi"
)

// A place is where a process can be killed. Requests that it has sent are carried
// out.
type place string

const (
	// A request has arrived and has had no effect yet.
	cloudBefore place = "before the cloud's "
	apiBefore   place = "before an API write"

	// It was carried out and the answer is not on its way yet.
	cloudAfter place = "after the cloud's "
	apiAfter   place = "after an API write"

	// A while after the first request.
	anywhere place = "after a while"
)

func reached(op cloud.Op) place    { return cloudBefore + place(op) }
func carriedOut(op cloud.Op) place { return cloudAfter + place(op) }

// A moment is when a process is killed: when something happens for the nth time in
// its life, but not later than wait after its first request.
type moment struct {
	place place
	nth   int
	wait  time.Duration
}

// longestLife is how long what a moment waits for may keep the test waiting.
const longestLife = 2 * time.Second

// latest is how late a create takes effect whose process was killed.
const latest = 1500 * time.Millisecond

// throwMoment throws one of the places, each as likely as others.
func throwMoment(r *rand.Rand, places ...place) moment {
	m := moment{place: places[r.IntN(len(places))], nth: 1 + r.IntN(2), wait: longestLife}
	switch m.place {
	case apiBefore, apiAfter:
		// There are several for each of the cloud's.
		m.nth = 1 + r.IntN(12)
	case anywhere:
		m.wait = time.Duration(r.IntN(int(longestLife)))
	}
	return m
}

// A hunt lets processes of a provider live and die. All that they ask for passes
// by it.
type hunt struct {
	config processConfig
	world  *cloud.Cloud

	mu     sync.Mutex
	moment *moment
	seen   map[place]int
	victim *victim
	kills  map[place]int

	// looked is closed when a process has looked for something next.
	looked chan struct{}
}

// A victim is a process.
type victim struct {
	cmd *exec.Cmd

	// alive is closed when the process has asked for something, dead when it has
	// ended, for whatever reason.
	alive, dead chan struct{}
	once        sync.Once
	stdin       io.Closer
}

func newHunt(t *testing.T, world *cloud.Cloud) *hunt {
	t.Helper()
	h := &hunt{world: world, seen: map[place]int{}, kills: map[place]int{}, looked: make(chan struct{})}
	world.SetHooks(cloud.Hooks{
		Before: func(_ context.Context, c cloud.Call) error { h.passes(reached(c.Op)); return nil },
		After:  func(_ context.Context, c cloud.Call) error { h.passes(carriedOut(c.Op)); return nil },
	})
	serve := func(handler http.Handler) string {
		s := httptest.NewUnstartedServer(handler)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.Start()
		t.Cleanup(func() {
			s.CloseClientConnections()
			s.Close()
		})
		return s.URL
	}
	h.config = processConfig{API: serve(h.proxy(t)), Cloud: serve(httpapi.Handler(world))}
	return h
}

// proxy returns what stands between the provider and the API server.
func (h *hunt) proxy(t *testing.T) http.Handler {
	t.Helper()
	to, err := url.Parse(plane.Config().Host)
	must(t, "url.Parse()", err)
	transport, err := rest.TransportFor(plane.Config())
	must(t, "rest.TransportFor()", err)
	p := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method != http.MethodGet {
				h.passes(apiAfter)
			}
			return nil
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			h.passes(anywhere)
			p.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}

		// A request that has arrived is carried out even if its client is gone.
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.passes(apiBefore)
		p.ServeHTTP(w, r)
	})
}

// passes is called when the process has come to a place. If it is to die there it
// is dead on return.
func (h *hunt) passes(at place) {
	h.mu.Lock()
	v := h.victim
	h.seen[at]++
	if at == carriedOut(cloud.OpList) {
		close(h.looked)
		h.looked = make(chan struct{})
	}
	looked := h.looked
	dies := v != nil && h.moment != nil && h.moment.place == at && at != anywhere && h.seen[at] == h.moment.nth
	h.mu.Unlock()
	if v == nil {
		return
	}
	v.once.Do(func() { close(v.alive) })
	if !dies {
		return
	}
	h.kill(at, v)

	// The worst that a create can do is to come true when the next process has
	// looked for its resource and found none.
	if at == reached(cloud.OpCreate) {
		select {
		case <-looked:
		case <-time.After(latest):
		}
	}
}

func (h *hunt) kill(at place, v *victim) {
	h.mu.Lock()
	if h.victim == v {
		h.victim, h.moment = nil, nil
		h.kills[at]++
	}
	h.mu.Unlock()
	_ = v.cmd.Process.Kill()
	<-v.dead
}

// start a process that dies at a moment, or lives if that is nil.
func (h *hunt) start(t *testing.T, m *moment) *victim {
	t.Helper()
	description, err := json.Marshal(h.config)
	must(t, "json.Marshal()", err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processVariable+"="+string(description))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, "StdinPipe()", err)
	must(t, "Start()", cmd.Start())
	v := &victim{cmd: cmd, alive: make(chan struct{}), dead: make(chan struct{}), stdin: stdin}
	go func() {
		defer close(v.dead)
		_ = cmd.Wait()
	}()

	// It takes far longer to ask for anything.
	h.mu.Lock()
	h.victim, h.moment, h.seen = v, m, map[place]int{}
	h.mu.Unlock()
	t.Cleanup(func() { h.kill(anywhere, v) })
	return v
}

// hunts lets a process live until its moment has come.
func (h *hunt) hunts(t *testing.T, m moment) {
	t.Helper()
	v := h.start(t, &m)
	select {
	case <-v.alive:
	case <-v.dead:
	case <-time.After(patience):
		t.Fatal("the provider doesn't ask for anything")
	}
	select {
	case <-v.dead:
	case <-time.After(m.wait):
		h.kill(anywhere, v)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.victim == v {
		t.Fatal("the provider ended by itself")
	}
}

// died counts the kills by where they took place.
func (h *hunt) died() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprint(h.kills)
}
