//go:build upjet && integration

package upjet_test

import (
	"bytes"
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	xpcontroller "github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	tjcontroller "github.com/crossplane/upjet/v2/pkg/controller"
	tfsetup "github.com/crossplane/upjet/v2/pkg/terraform"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud/httpapi"
	"github.com/crossplane-graft/graft/pkg/hack/internal/controlplane"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/apis"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/config"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/terraform"
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
	Graft      bool
	Finders    bool

	// KillAt is the step, counted from 1, before or after which the process kills
	// itself: a write to the API server, or a call of the cloud.
	KillAt int64
	After  bool
}

// runProcess runs a provider until it is killed, or its standard input ends.
func runProcess(text string) error {
	var c processConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(context.Background())

	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
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

	k := &killer{config: c}
	rc.QPS, rc.Burst = 1000, 2000
	rc.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &deadly{killer: k, inner: rt} })

	mgr, err := ctrl.NewManager(rc, ctrl.Options{Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"})
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
		SetupFn: func(ctx context.Context, _ client.Client, _ xpresource.Managed) (tfsetup.Setup, error) {
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
	config processConfig
	steps  atomic.Int64
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

// real is a cloud, a real API server and a provider.
type real struct {
	provider provider
	client   client.Client
	cloud    *cloud.Cloud
	url      string
}

// realReadyAfter is how long a create takes.
const realReadyAfter = 2 * time.Second

func newReal(t *testing.T, p provider) *real {
	t.Helper()

	s := runtime.NewScheme()
	must(t, "AddToScheme()", apis.AddToScheme(s))

	c, err := client.New(plane.Config(), client.Options{Scheme: s})
	must(t, "New()", err)

	world := cloud.New(cloud.Options{ReadyAfter: realReadyAfter})
	server := httptest.NewServer(httpapi.Handler(world))
	t.Cleanup(server.Close)

	return &real{provider: p, client: c, cloud: world, url: server.URL}
}

// start a process of the provider. It is killed at the end of the test.
func (r *real) start(t *testing.T, killAt int64, after bool) *exec.Cmd {
	t.Helper()

	text, err := json.Marshal(processConfig{
		Kubeconfig: plane.Kubeconfig(), Cloud: r.url,
		Graft: r.provider.graft, Finders: r.provider.finders, KillAt: killAt, After: after,
	})
	must(t, "Marshal()", err)

	self, err := os.Executable()
	must(t, "Executable()", err)

	var out bytes.Buffer

	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Env = append(os.Environ(), processVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = &out, &out

	_, err = cmd.StdinPipe()
	must(t, "StdinPipe()", err)
	must(t, "Start()", cmd.Start())
	t.Cleanup(func() { stop(cmd) })

	return cmd
}

// stop kills a process and waits for its end.
func stop(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// one managed resource of each kind, whose name and owner in the cloud begin with a
// word.
func (r *real) want(t *testing.T, word string) []*world {
	t.Helper()

	var out []*world

	for _, k := range kinds() {
		name := fmt.Sprintf("%s-%s-%s", word, k.group, strings.ToLower(k.kind))
		w := &world{kind: k, provider: r.provider, admin: r.client, cloud: r.cloud, name: name}
		w.create(t)
		out = append(out, w)
	}

	return out
}

// settle lets a provider go on until all is at rest.
func settle(t *testing.T, ws []*world, so func(w *world, mg xpresource.Managed) bool) {
	t.Helper()

	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()

	end := time.Now().Add(3 * time.Minute)

	for left := slices.Clone(ws); len(left) > 0; <-ticker.C {
		left = slices.DeleteFunc(left, func(w *world) bool {
			mg := w.get(t)
			if mg == nil {
				return so(w, nil)
			}

			w.waits(t, mg)

			return so(w, mg)
		})

		if time.Now().After(end) {
			for _, w := range left {
				b, _ := json.Marshal(w.get(t))
				t.Errorf("%s is not at rest: %s", w.name, b)
			}

			t.FailNow()
		}
	}
}

// A provider of four controllers is killed with SIGKILL while creates run. The next
// process has to find out what came of them.
func TestRealMatrix(t *testing.T) {
	for _, p := range providers() {
		t.Run(p.name, func(t *testing.T) {
			r := newReal(t, p)
			ws := r.want(t, strings.ReplaceAll(strings.ReplaceAll(p.name, ", ", "-"), " ", "-"))

			first := r.start(t, 0, false)
			settle(t, ws, func(w *world, _ xpresource.Managed) bool { return w.creates() > 0 })
			stop(first)

			for _, w := range ws {
				w.pass(t)
			}

			r.start(t, 0, false)
			settle(t, ws, func(w *world, mg xpresource.Managed) bool {
				return stopped(mg) != "" || w.creates() > 1 || ready(mg) && (w.named(mg) || !p.graft)
			})

			got, wanted := map[string]string{}, map[string]string{}
			for _, w := range ws {
				got[w.kind.name], wanted[w.kind.name] = w.verdict(t), want(w.kind, p, "killed while it runs")
			}

			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Errorf("killed while it runs: -want, +got:\n%s", diff)
			}

			t.Logf("killed while it runs: %v", got)
			remove(t, ws)
		})
	}
}

// The provider with Graft and Finders is killed with SIGKILL at steps of four lives that
// run side by side.
func TestRealKills(t *testing.T) {
	const kills = 20

	r := newReal(t, providers()[2])

	for n := range int64(kills) {
		ws := r.want(t, fmt.Sprintf("life-%d", n))

		killed := r.start(t, 2*n+1, n%2 == 0)
		died := make(chan error, 1)

		go func() { died <- killed.Wait() }()

		deleted := false

		for dead := false; !dead; {
			select {
			case <-died:
				dead = true
			case <-time.After(200 * time.Millisecond):
				// The later steps are those of a deletion.
				all := true
				for _, w := range ws {
					mg := w.get(t)
					all = all && mg != nil && ready(mg) && w.named(mg)
				}

				if all && !deleted {
					deleted = true
					for _, w := range ws {
						must(t, "Delete()", r.client.Delete(t.Context(), w.get(t)))
					}
				}

				gone := true
				for _, w := range ws {
					gone = gone && w.get(t) == nil
				}

				if gone {
					_ = killed.Process.Kill()
				}
			}
		}

		last := r.start(t, 0, false)

		if !deleted {
			settle(t, ws, func(w *world, mg xpresource.Managed) bool { return ready(mg) && w.named(mg) })

			for _, w := range ws {
				must(t, "Delete()", client.IgnoreNotFound(r.client.Delete(t.Context(), w.get(t))))
			}
		}

		settle(t, ws, func(_ *world, mg xpresource.Managed) bool { return mg == nil })
		stop(last)

		for _, w := range ws {
			if w.creates() != 1 || len(w.external()) > 0 {
				t.Errorf("kill %d, %s: %d creates, %d external resources are left", n, w.name, w.creates(), len(w.external()))
			}
		}
	}

	t.Logf("killed %d times", kills)
}

// remove what a test leaves, whatever holds it.
func remove(t *testing.T, ws []*world) {
	t.Helper()

	for _, w := range ws {
		if mg := w.get(t); mg != nil {
			must(t, "Delete()", client.IgnoreNotFound(w.admin.Delete(t.Context(), mg)))
			must(t, "Patch()", client.IgnoreNotFound(w.admin.Patch(t.Context(), mg, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))))
		}
	}
}
