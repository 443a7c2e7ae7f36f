//go:build upjet && integration

package upjet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	xpcontroller "github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	tjcontroller "github.com/crossplane/upjet/v2/pkg/controller"
	"github.com/crossplane/upjet/v2/pkg/resource"
	tfsetup "github.com/crossplane/upjet/v2/pkg/terraform"
	"github.com/go-logr/logr"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/crossplane-graft/graft/pkg/hack/internal/controlplane"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/apis"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/config"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/terraform"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud/httpapi"
)

// processVariable turns the test binary into a process of the provider.
const processVariable = "GRAFT_TEST_UPJET_PROVIDER"

// plane is the control plane that all tests share.
var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	if text := os.Getenv(processVariable); text != "" {
		if err := runProcess(text); err != nil {
			fmt.Fprintln(os.Stderr, "provider:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	definitions, err := readCRDs()
	if err == nil {
		plane, err = controlplane.Start(ctx, controlplane.Options{CRDs: definitions, Progress: os.Stderr})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "upjet:", err)
		return 1
	}
	code := m.Run()
	if err := plane.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "upjet:", err)
		return 1
	}
	return code
}

// processConfig is what a process of the provider has to know.
type processConfig struct {
	Kubeconfig string
	Cloud      string
	Namespace  string
	Graft      bool
	Finders    bool

	// KillAt is the step, counted from 1, before or after which the process kills
	// itself: a write to the API server, or a call of the cloud.
	KillAt int64
	After  bool
}

// What a process is told on its standard input, and what it says on its standard output.
const (
	refuse    = "refuse"     // writes to the API server from now on
	refusing  = "refusing"   // it does
	refused   = "refused "   // a write, of this path
	connected = "connected " // for a reconcile of the managed resource of this name
)

// runProcess runs a provider until it is killed, or its standard input ends.
func runProcess(text string) error {
	var c processConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	k := &killer{config: c}
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			k.refuses.Store(in.Text() == refuse)
			fmt.Println(refusing)
		}
		cancel()
	}()
	s := runtime.NewScheme()
	if err := apis.AddToScheme(s); err != nil {
		return err
	}
	rc, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	rc.QPS, rc.Burst = 1000, 2000
	rc.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &deadly{killer: k, inner: rt} })
	mgr, err := ctrl.NewManager(rc, ctrl.Options{
		Scheme:                 s,
		Cache:                  cache.Options{DefaultNamespaces: map[string]cache.Config{c.Namespace: {}}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		// The tracker waits for 40 seconds at most, and a busy machine takes longer.
		GracefulShutdownTimeout: ptr.To(2 * time.Minute),
	})
	if err != nil {
		return err
	}
	p := config.Stock()
	if c.Graft {
		p = config.Graft()
	}
	f := &feature.Flags{}
	f.Enable(feature.EnableBetaManagementPolicies)
	o := tjcontroller.Options{
		Options: xpcontroller.Options{
			Logger:                  logging.NewNopLogger(),
			GlobalRateLimiter:       ratelimiter.NewGlobal(1000),
			PollInterval:            time.Second,
			MaxConcurrentReconciles: 2,
			Features:                f,
		},
		Provider:              p,
		OperationTrackerStore: tjcontroller.NewOperationStore(logging.NewNopLogger()),
		SetupFn: func(ctx context.Context, _ client.Client, mg xpresource.Managed) (tfsetup.Setup, error) {
			fmt.Println(connected + mg.GetName())
			inner, err := httpapi.NewClient(c.Cloud, http.DefaultClient).NewSession(ctx, "")
			s := &deadlySession{killer: k, Session: inner}
			return tfsetup.Setup{Meta: s, FrameworkProvider: terraform.FrameworkProvider(s)}, err
		},
	}
	for _, k := range kinds() {
		add := k.stock
		if c.Graft {
			add = k.graft
		}
		if c.Graft && !c.Finders {
			p.Resources[k.name].InitializerFns = nil
		}
		if err := add(mgr, o); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// killer kills its own process.
type killer struct {
	config  processConfig
	steps   atomic.Int64
	refuses atomic.Bool
}

func (k *killer) step(do func()) {
	n := k.steps.Add(1)
	if n == k.config.KillAt && !k.config.After {
		die()
	}
	do()
	if n == k.config.KillAt {
		die()
	}
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // Until it is there.
}

// deadly is a transport of requests to the API server.
type deadly struct {
	killer *killer
	inner  http.RoundTripper
}

func (d *deadly) RoundTrip(req *http.Request) (r *http.Response, err error) {
	if req.Method == http.MethodGet || strings.HasSuffix(req.URL.Path, "/events") {
		return d.inner.RoundTrip(req)
	}
	if d.killer.refuses.Load() {
		fmt.Println(refused + req.URL.Path)
		return nil, errors.New("the API server is away")
	}
	d.killer.step(func() { r, err = d.inner.RoundTrip(req) })
	return r, err
}

// deadlySession counts the calls that change something in the cloud.
type deadlySession struct {
	terraform.Session

	killer *killer
}

func (s *deadlySession) Create(ctx context.Context, req cloud.CreateRequest) (r cloud.Resource, err error) {
	s.killer.step(func() { r, err = s.Session.Create(ctx, req) })
	return r, err
}

func (s *deadlySession) Delete(ctx context.Context, id string) (err error) {
	s.killer.step(func() { err = s.Session.Delete(ctx, id) })
	return err
}

// group is a managed resource of each kind, in a namespace of their own, with a cloud,
// and the processes of a provider for them.
type group struct {
	provider  provider
	namespace string
	client    client.Client
	cloud     *cloud.Cloud
	clock     *cloud.ManualClock
	url       string
	worlds    []*world
}

func newGroup(t *testing.T, p provider) *group {
	t.Helper()
	s := runtime.NewScheme()
	must(t, "AddToScheme()", apis.AddToScheme(s))
	must(t, "AddToScheme()", corev1.AddToScheme(s))
	c, err := client.New(plane.Config(), client.Options{Scheme: s})
	must(t, "New()", err)
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "upjet-"}}
	must(t, "Create()", c.Create(t.Context(), n))
	clock := cloud.NewManualClock(time.Now())
	g := &group{provider: p, namespace: n.Name, client: c, clock: clock, cloud: cloud.New(cloud.Options{Clock: clock, ReadyAfter: readyAfter})}
	server := httptest.NewServer(httpapi.Handler(g.cloud))
	t.Cleanup(server.Close)
	g.url = server.URL
	for _, k := range kinds() {
		w := &world{
			kind: k, provider: p, admin: c, cloud: g.cloud, clock: clock,
			namespace: n.Name, name: k.group + "-" + strings.ToLower(k.kind),
		}
		w.create(t)
		g.worlds = append(g.worlds, w)
	}
	return g
}

// realProcess is a process of the provider.
type realProcess struct {
	*group

	cmd  *exec.Cmd
	in   io.WriteCloser
	died chan struct{}

	mu     sync.Mutex
	said   []string
	errors strings.Builder
}

// start a process, which kills itself before or after a step unless that is 0. It is
// killed at the end of the test.
func (g *group) start(t *testing.T, killAt int64, after bool) *realProcess {
	t.Helper()
	text, err := json.Marshal(processConfig{
		Kubeconfig: plane.Kubeconfig(), Cloud: g.url, Namespace: g.namespace,
		Graft: g.provider.graft, Finders: g.provider.finders, KillAt: killAt, After: after,
	})
	must(t, "Marshal()", err)
	self, err := os.Executable()
	must(t, "Executable()", err)
	p := &realProcess{group: g, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), self), died: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), processVariable+"="+string(text))
	p.cmd.Stderr = &p.errors
	p.in, err = p.cmd.StdinPipe()
	must(t, "StdinPipe()", err)
	out, err := p.cmd.StdoutPipe()
	must(t, "StdoutPipe()", err)
	must(t, "Start()", p.cmd.Start())
	t.Cleanup(p.kill)
	go func() {
		defer close(p.died)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.said = append(p.said, lines.Text())
			p.mu.Unlock()
		}
		_ = p.cmd.Wait()
	}()
	return p
}

// kill a process, and wait for its end.
func (p *realProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.died
}

// shutDown has a process end by itself.
func (p *realProcess) shutDown(t *testing.T) {
	t.Helper()
	must(t, "Close()", p.in.Close())
	<-p.died
	if !p.cmd.ProcessState.Success() {
		t.Fatalf("the process ended with %s: %s", p.cmd.ProcessState, p.errors.String())
	}
}

// says returns how often a process has said something about a managed resource.
func (p *realProcess) says(what, name string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.said {
		if about, ok := strings.CutPrefix(line, what); ok && slices.Contains(strings.Split(about, "/"), name) {
			n++
		}
	}
	return n
}

// until waits until something is so of all managed resources. done is called with nil
// for one that no longer exists.
func (p *realProcess) until(t *testing.T, what string, done func(w *world, mg xpresource.Managed) bool) {
	t.Helper()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	end := time.Now().Add(5 * time.Minute)
	for left := slices.Clone(p.worlds); ; {
		left = slices.DeleteFunc(left, func(w *world) bool { return done(w, w.get(t)) })
		switch {
		case len(left) == 0:
			return
		case time.Now().After(end):
			b, _ := json.Marshal(left[0].get(t))
			p.kill()
			t.Fatalf("waited for: %s: %s: %s", what, b, p.errors.String())
		}
		<-ticker.C
	}
}

// creating returns a process whose creates are requested, and do not end before the
// cloud's clock says so.
func (g *group) creating(t *testing.T) *realProcess {
	t.Helper()
	p := g.start(t, 0, false)
	p.until(t, "the create is requested", func(w *world, mg xpresource.Managed) bool {
		// Upstream says that a create has succeeded as soon as it has begun.
		return w.requested() && (g.provider.graft || !meta.ExternalCreateIncomplete(mg))
	})
	return p
}

// created returns a process whose creates have ended, and were reconciled.
func (g *group) created(t *testing.T) *realProcess {
	t.Helper()
	p := g.creating(t)
	g.clock.Advance(readyAfter)
	p.until(t, "the managed resource is ready", func(_ *world, mg xpresource.Managed) bool { return ready(mg) })
	return p
}

// rest starts the next process, and lets it go on until nothing more is to be expected.
func (g *group) rest(t *testing.T) {
	t.Helper()
	for _, w := range g.worlds {
		w.pass(t)
	}
	p := g.start(t, 0, false)
	p.until(t, "the managed resource comes to rest", func(w *world, mg xpresource.Managed) bool {
		if mg != nil {
			w.waits(t, mg)
		}

		// What is ready may be so since before. The first reconciles decide.
		return w.rested(mg) && (mg == nil || stopped(mg) != "" || w.creates() > 1 || p.says(connected, w.name) > 3)
	})
}

// realRows are the rows of the matrix with processes and a real API server, by name.
// There is none for what happens inside one process alone.
func realRows() map[string]func(t *testing.T, g *group) {
	return map[string]func(t *testing.T, g *group){
		"create ended, reconciled": func(t *testing.T, g *group) { g.created(t) },
		"then restart": func(t *testing.T, g *group) {
			g.created(t).kill()
			g.rest(t)
		},
		"killed while it runs": func(t *testing.T, g *group) {
			g.creating(t).kill()
			g.rest(t)
		},
		"ended, not stored, killed": func(t *testing.T, g *group) {
			p := g.creating(t)
			_, err := fmt.Fprintln(p.in, refuse)
			must(t, "Fprintln()", err)
			await(t, "the API server is away", func() bool { return p.says(refusing, "") > 0 })
			g.clock.Advance(readyAfter)
			p.until(t, "the result is refused", func(w *world, _ xpresource.Managed) bool { return p.says(refused, w.name) > 0 })
			p.kill()
			g.rest(t)
		},
		"graceful shutdown in mid-create": func(t *testing.T, g *group) {
			g.creating(t).shutDown(t)
			g.rest(t)
		},
		"Terraform error after the id was set, killed before the next Observe": func(t *testing.T, g *group) {
			g.cloud.SetHooks(cloud.Hooks{Before: func(_ context.Context, c cloud.Call) error {
				if c.Op == cloud.OpGet && slices.ContainsFunc(g.cloud.Inventory(), func(r cloud.Resource) bool { return r.ID == c.ID }) {
					return errors.New("InternalError: try again")
				}
				return nil
			}})
			p := g.start(t, 0, false)
			p.until(t, "the create has failed", func(w *world, mg xpresource.Managed) bool {
				if !g.provider.graft {
					// Upjet may lose the result of an operation, but observes then.
					return mg.GetCondition(resource.TypeLastAsyncOperation).Status == corev1.ConditionFalse ||
						mg.GetCondition("Synced").Status == corev1.ConditionFalse
				}
				r := recordOf(t, mg)
				return r != nil && r["phase"] != "running"
			})
			p.kill()
			g.cloud.SetHooks(cloud.Hooks{})
			g.rest(t)
		},
		"killed while it runs, then deleted": func(t *testing.T, g *group) {
			g.creating(t).kill()
			g.remove(t)
			g.rest(t)
		},
	}
}

// remove asks for the deletion of the managed resources.
func (g *group) remove(t *testing.T) {
	t.Helper()
	for _, w := range g.worlds {
		if mg := w.get(t); mg != nil {
			must(t, "Delete()", client.IgnoreNotFound(g.client.Delete(t.Context(), mg)))
		}
	}
}

// realCells runs the matrix with processes that are killed with SIGKILL, each of which
// has four controllers.
func realCells(t *testing.T, report func(t *testing.T, k kind, p provider, row, got string)) {
	t.Helper()
	for row, run := range realRows() {
		for _, p := range providers() {
			t.Run("real/"+p.name+"/"+row, func(t *testing.T) {
				t.Parallel()
				g := newGroup(t, p)
				run(t, g)
				for _, w := range g.worlds {
					report(t, w.kind, p, row, w.verdict(t))
				}
			})
		}
	}
}

// The provider with Graft and Finders is killed with SIGKILL before and after each step
// of four lives that run side by side.
func TestRealKills(t *testing.T) {
	const steps = 32
	var kills atomic.Int64
	t.Run("steps", func(t *testing.T) {
		for n := range int64(steps) {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d/%t", n+1, after), func(t *testing.T) {
					t.Parallel()
					g := newGroup(t, providers()[2])
					if p := g.start(t, n+1, after); g.live(t, p) {
						kills.Add(1)
						if g.live(t, g.start(t, 0, false)) {
							t.Error("the second process died, too")
						}
					}
					for _, w := range g.worlds {
						if w.get(t) != nil || w.creates() != 1 || len(w.external()) > 0 {
							t.Errorf("%s: %d creates, %d external resources are left", w.name, w.creates(), len(w.external()))
						}
					}
				})
			}
		}
	})
	t.Logf("killed %d times", kills.Load())
	if n := kills.Load(); n < steps {
		t.Errorf("killed %d times, want at least %d", n, steps)
	}
}

// live the lives of the managed resources, as far as the process goes: they are deleted
// when all of them are ready. It reports whether the process died before they are gone.
func (g *group) live(t *testing.T, p *realProcess) (died bool) {
	t.Helper()
	defer p.kill()
	dead := func() bool {
		select {
		case <-p.died:
			return true
		default:
			return false
		}
	}

	// The later steps are those of a deletion.
	p.until(t, "the managed resources are ready", func(w *world, mg xpresource.Managed) bool {
		if mg != nil {
			w.waits(t, mg)
		}
		return dead() || mg == nil || meta.WasDeleted(mg) || ready(mg) && w.named(mg)
	})
	if dead() {
		return true
	}
	g.remove(t)
	p.until(t, "the managed resources are gone", func(w *world, mg xpresource.Managed) bool {
		if mg != nil {
			w.waits(t, mg)
		}
		return dead() || mg == nil
	})
	return dead()
}
