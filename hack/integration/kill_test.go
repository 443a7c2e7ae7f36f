//go:build integration

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud/httpapi"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

const (
	processVariable = "GRAFT_TEST_PROVIDER"   // It describes a process of the provider.
	dyingHeader     = "X-Dying"               // The process does not live to see the answer.
	latest          = 1500 * time.Millisecond // A create of a killed process takes effect by then.
)

type moment struct {
	// To is an operation of the cloud, or empty for writes to the API server. The process
	// dies at the nth one: when the request was sent, or when its answer came.
	To   cloud.Op
	Nth  int64
	Sent bool

	After time.Duration // It lives no longer, unless it is zero.
}

type processConfig struct {
	Kubeconfig, Cloud string
	Moment            moment
}

// runProcess runs a provider until it is killed, or until its parent process exits. Its
// clients do everything while they are called, and are made asynchronous by one option.
func runProcess(description string) error {
	var c processConfig
	if err := json.Unmarshal([]byte(description), &c); err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = 1000, 2000
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	sessions := sample.WithSessions(func(ctx context.Context, token string) (cloud.Client, error) {
		of := func(r *http.Request) bool { return c.Moment.To != "" && r.URL.Path == "/"+string(c.Moment.To) }
		return httpapi.NewClient(
			c.Cloud, &http.Client{Transport: c.Moment.deadly(http.DefaultTransport, of)},
		).NewSession(ctx, token)
	})

	// An operation takes less than a second on an idle machine. The
	// requests of a dead process take no longer than latest.
	m, err := newProvider(cfg, async(asyncstate.WithAbsenceAfter(4*time.Second)), setup{
		poll: time.Second,
		wrap: func(next http.RoundTripper) http.RoundTripper {
			return c.Moment.deadly(
				next, func(r *http.Request) bool { return c.Moment.To == "" && r.Method != http.MethodGet },
			)
		},
		connectors: connectors{
			untyped: sample.NewLasting[resource.Managed](nil, sessions),
			typed:   sample.NewLasting[*v1alpha1.Bucket](nil, sessions, sample.WithCreateTokens()),
		},
	})
	if err != nil {
		return err
	}
	if c.Moment.After > 0 {
		time.AfterFunc(c.Moment.After, die)
	}
	return m.Start(ctx)
}

// reached are the requests of this process that have come to the place of its moment.
var reached atomic.Int64

func (m moment) deadly(next http.RoundTripper, of func(r *http.Request) bool) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if !of(r) || reached.Add(1) != m.Nth {
			return next.RoundTrip(r)
		}
		defer die()
		if m.Sent {
			// The cloud says when a request has arrived.
			trace := &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error { die(); return nil }}
			if m.To == "" {
				trace = &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { die() }}
			}
			r = r.Clone(httptrace.WithClientTrace(r.Context(), trace))
			r.Header.Set(dyingHeader, "true")
		}
		return next.RoundTrip(r)
	})
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // Until it takes effect.
}

type hunt struct {
	url  string
	late atomic.Int64 // Creates that took effect late.
}

func newHunt(t *testing.T, world *cloud.Cloud) *hunt {
	t.Helper()
	h, looked := &hunt{}, make(chan struct{})
	world.SetHooks(cloud.Hooks{After: func(_ context.Context, c cloud.Call) error {
		if c.Op == cloud.OpList {
			select {
			case looked <- struct{}{}:
			default:
			}
		}
		return nil
	}})
	inner := httpapi.Handler(world)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))

		dying := r.Header.Get(dyingHeader) != ""
		if dying {
			w.WriteHeader(http.StatusEarlyHints)
			<-r.Context().Done()
		}

		// The worst that a create can do is to come true when the next process has looked
		// for its resource and found none.
		if dying && r.URL.Path == "/"+string(cloud.OpCreate) {
			h.late.Add(1)
			select {
			case <-looked:
			case <-time.After(latest):
			}
		}
		inner.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	h.url = s.URL
	return h
}

// start a process, and return what kills it, which the test's end does as well, and what
// waits until it is dead.
func (h *hunt) start(t *testing.T, m moment) (kill func(), wait func()) {
	t.Helper()
	description, err := json.Marshal(processConfig{Kubeconfig: plane.Kubeconfig(), Cloud: h.url, Moment: m})
	must(t, "json.Marshal()", err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processVariable+"="+string(description))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, "StdinPipe()", err)
	must(t, "Start()", cmd.Start())
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		_ = cmd.Wait()
	}()
	kill = func() {
		_ = cmd.Process.Kill()
		<-dead
		_ = stdin.Close()
	}
	t.Cleanup(kill)
	return kill, func() {
		t.Helper()
		select {
		case <-dead:
		case <-time.After(patience):
			t.Fatal("the process doesn't die")
		}
		if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
			t.Fatalf("the process ended by itself: %s", cmd.ProcessState)
		}
	}
}

// A process of the provider is killed with SIGKILL 50 times at random moments, while
// 20 managed resources are created, changed, deleted and created again. However it
// ends, there is one external resource for each of them, and none once they are
// gone.
func TestKilledProvider(t *testing.T) {
	const (
		objects  = 20 // half of them Databases and half Buckets
		changing = 42 // kills while users change what they want
		deleting = 8  // kills while everything is being deleted
	)
	seed := seedOf(t, 1)
	s := newServer(t)
	world := slowCloud(seed)
	h := newHunt(t, world)
	u := newUsers(t, s, seed, objects, nil)
	sent := func(op cloud.Op) moment { return moment{To: op, Sent: true} }
	answered := func(op cloud.Op) moment { return moment{To: op} }
	kill := func(n int, places ...moment) {
		m := places[u.rand.IntN(len(places))]
		m.Nth, m.After = 1+u.rand.Int64N(2), time.Second+time.Duration(u.rand.IntN(int(time.Second)))
		if m.To == "" {
			m.Nth = 1 + u.rand.Int64N(12) // There are several for each of the cloud's.
		}
		t.Logf("kill %d: %+v", n, m)
		_, wait := h.start(t, m)
		wait()
	}
	for i := range changing {
		u.change(t, 10)
		kill(i, sent(cloud.OpCreate), sent(cloud.OpCreate), answered(cloud.OpCreate), answered(cloud.OpCreate),
			sent(cloud.OpUpdate), answered(cloud.OpUpdate), sent(cloud.OpDelete), answered(cloud.OpDelete),
			sent(cloud.OpList), answered(cloud.OpGet), sent(""), sent(""), answered(""), answered(""),
			answered("nothing"))
	}
	last, _ := h.start(t, moment{})
	u.settle(t, world)
	u.check(t, world, objects)
	last()
	s.remove(t, u.slots...)
	for i := range deleting {
		kill(
			changing+i,
			sent(cloud.OpDelete),
			answered(cloud.OpDelete),
			answered(cloud.OpGet),
			sent(""),
			answered(""),
			answered("nothing"),
		)
	}
	h.start(t, moment{})
	s.untilGone(t)
	u.check(t, world, 0)
	t.Logf("%d managed resources were created in all; %d creates took effect late", len(u.created), h.late.Load())
	if h.late.Load() == 0 {
		t.Error("want creates that take effect after their process was killed")
	}
}
