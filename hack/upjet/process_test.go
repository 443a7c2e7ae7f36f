//go:build upjet

package upjet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	xpcontroller "github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	upjetconfig "github.com/crossplane/upjet/v2/pkg/config"
	tjcontroller "github.com/crossplane/upjet/v2/pkg/controller"
	"github.com/crossplane/upjet/v2/pkg/resource"
	tfsetup "github.com/crossplane/upjet/v2/pkg/terraform"
	"github.com/go-logr/logr"
	"github.com/pkg/errors"
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

const processVariable = "GRAFT_TEST_UPJET_PROVIDER"

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
	var err error
	if plane, err = controlplane.Start(ctx, controlplane.Options{CRDDir: "crds", Progress: os.Stderr}); err != nil {
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

type processConfig struct {
	Kubeconfig string
	Cloud      string
	Namespace  string
	Graft      bool
	Finders    bool
	Holds      bool // A Connect that finds a create in progress, and no state yet, waits for its end.
}

// The lines on the standard input and output of a process.
const (
	refuse    = "refuse"     // Refuse writes to the API server from now on.
	refusing  = "refusing"   // The process refuses them.
	refused   = "refused "   // It has refused a write with this path.
	connected = "connected " // A reconcile of the managed resource of this name connects.
	held      = "held "      // Such a reconcile waits in Connect.
)

func runProcess(text string) error {
	var c processConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	refuses := &atomic.Bool{}
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			refuses.Store(in.Text() == refuse)
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
	rc.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &refusingTransport{inner: rt, refuses: refuses} })
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
	running := &operations{
		store: tjcontroller.NewOperationStore(logging.NewNopLogger()),
		last:  map[string]resource.Terraformed{},
	}
	o := options(p, running.store, time.Second, func(
		ctx context.Context, _ client.Client, mg xpresource.Managed,
	) (tfsetup.Setup, error) {
		running.note(mg)
		fmt.Println(connected + mg.GetName())
		inner, err := httpapi.NewClient(c.Cloud, http.DefaultClient).NewSession(ctx, "")
		s := &ownedSession{Session: inner, owner: mg.GetName()}
		return tfsetup.Setup{Meta: s, FrameworkProvider: terraform.FrameworkProvider(s)}, err
	})
	for _, k := range kinds() {
		add := k.stock
		if c.Graft {
			add = k.graft
		}
		if c.Graft && !c.Finders {
			p.Resources[k.name].InitializerFns = nil
		}
		if c.Holds {
			running.hold(p.Resources[k.name], k.object())
		}
		if err := add(mgr, o); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// options returns the options of the generated controllers.
func options(
	c *upjetconfig.Provider, store *tjcontroller.OperationTrackerStore, poll time.Duration, setup tfsetup.SetupFn,
) tjcontroller.Options {
	f := &feature.Flags{}
	f.Enable(feature.EnableBetaManagementPolicies)
	return tjcontroller.Options{
		Options: xpcontroller.Options{
			Logger:                  logging.NewNopLogger(),
			GlobalRateLimiter:       ratelimiter.NewGlobal(1000),
			PollInterval:            poll,
			MaxConcurrentReconciles: 2,
			Features:                f,
		},
		Provider:              c,
		OperationTrackerStore: store,
		SetupFn:               setup,
	}
}

type operations struct {
	store *tjcontroller.OperationTrackerStore

	mu   sync.Mutex
	last map[string]resource.Terraformed // that was connected for
}

func (o *operations) note(mg xpresource.Managed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last[mg.GetName()], _ = mg.(resource.Terraformed)
}

// hold makes a Connect wait after upjet has checked for a state, and before it replaces
// that.
func (o *operations) hold(r *upjetconfig.Resource, name string) {
	inner := r.ExternalName.SetIdentifierArgumentFn
	r.ExternalName.SetIdentifierArgumentFn = func(base map[string]any, externalName string) {
		inner(base, externalName)
		if _, parameters := base["size"]; parameters {
			return
		}

		// The state that is reconstructed has an observation's attributes, or none.
		o.mu.Lock()
		create := o.store.Tracker(o.last[name]).LastOperation
		o.mu.Unlock()
		if create.IsRunning() {
			fmt.Println(held + name)
		}
		for create.IsRunning() {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// A refusingTransport refuses writes to the API server from when it is told to.
type refusingTransport struct {
	inner   http.RoundTripper
	refuses *atomic.Bool
}

func (t *refusingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && !strings.HasSuffix(req.URL.Path, "/events") && t.refuses.Load() {
		fmt.Println(refused + req.URL.Path)
		return nil, errors.New("the API server is away")
	}
	return t.inner.RoundTrip(req)
}

// An ownedSession creates resources that the cloud counts for the managed resource.
type ownedSession struct {
	terraform.Session

	owner string
}

func (s *ownedSession) Create(ctx context.Context, req cloud.CreateRequest) (cloud.Resource, error) {
	req.Owner = s.owner
	return s.Session.Create(ctx, req)
}
