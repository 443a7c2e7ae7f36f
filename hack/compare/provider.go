package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/hack/internal/apicalls"
	"github.com/crossplane-graft/graft/pkg/hack/internal/process"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud/httpapi"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	graft "github.com/crossplane-graft/graft/pkg/managed"
)

// providerVariable turns this program into a provider, as the variable's value
// describes it.
const providerVariable = "GRAFT_COMPARE_PROVIDER"

// A providerConfig configures a provider process. Its API server and its cloud run in other
// processes, so that its CPU time and memory are its own.
type providerConfig struct {
	Side, Kubeconfig, Cloud string
	Poll                    time.Duration

	// Controllers to add, of a kind without managed resources.
	Controllers int
}

const (
	workers = 10 // of a controller

	// grace is how long a new external resource may be missing, which it never is here.
	grace = time.Second
)

// The questions on a provider's standard input, a line each.
const (
	askUsage = "usage"
	askHeap  = "heap" // After a garbage collection.
)

// A usage has the resources that a provider has used since its start.
type usage struct {
	Reconciles   int
	Requests     tally
	CPU          time.Duration
	Heap, Stacks uint64
}

// A tally counts requests: all of them, each verb, and writes of status.
type tally map[string]int

func (t tally) add(verb string, n int) {
	t["requests"] += n
	t["requests/"+verb] += n
	if strings.HasSuffix(verb, " status") {
		t["status-writes"] += n
	}
}

// newReconciler is how both sides are built: all but the import is the same.
func newReconciler(
	side string, m ctrl.Manager, kind resource.ManagedKind, c upstream.ExternalConnector, poll time.Duration,
) reconcile.Reconciler {
	if side == graftSide {
		return graft.NewReconciler(m, kind,
			graft.WithManagementPolicies(), graft.WithInitializers(), graft.WithPollInterval(poll),
			graft.WithCreationGracePeriod(grace), graft.WithExternalConnector(c))
	}
	return upstream.NewReconciler(m, kind,
		upstream.WithManagementPolicies(), upstream.WithInitializers(), upstream.WithPollInterval(poll),
		upstream.WithCreationGracePeriod(grace), upstream.WithExternalConnector(c))
}

// runProvider runs a provider until there are no more questions.
func runProvider(ctx context.Context, description string, questions io.Reader, answers io.Writer) error {
	var c providerConfig
	s := kruntime.NewScheme()
	err := errors.Join(json.Unmarshal([]byte(description), &c), v1alpha1.AddToScheme(s))
	if err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	requests := &apicalls.Counter{}
	cfg.QPS = -1 // No limit of client-go's is measured.
	cfg.Wrap(requests.Wrap)
	m, err := process.NewManager(cfg, ctrl.Options{Scheme: s})
	if err != nil {
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: workers}
	session := func(ctx context.Context, token string) (cloud.Client, error) {
		return httpapi.NewClient(c.Cloud, &http.Client{Transport: transport}).NewSession(ctx, token)
	}
	connector := sample.NewSync[resource.Managed](nil, sample.WithSessions(session))
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](10*time.Millisecond, time.Second)
	for i := range 1 + c.Controllers {
		kind := v1alpha1.DatabaseManagedKind()
		if i > 0 {
			kind = v1alpha1.BucketManagedKind()
		}
		r := newReconciler(c.Side, m, kind, connector, c.Poll)
		if err := process.Control(m, kind, r, limiter, workers); err != nil {
			return err
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	out := json.NewEncoder(answers)
	for lines := bufio.NewScanner(questions); lines.Scan() && err == nil; {
		var cpu syscall.Rusage
		err = syscall.Getrusage(syscall.RUSAGE_SELF, &cpu)
		a := usage{
			CPU:        time.Duration(cpu.Utime.Nano() + cpu.Stime.Nano()),
			Reconciles: connector.Disconnects(), Requests: tally{},
		}
		for call, n := range requests.Counted() {
			// All other requests ask which kinds there are.
			verb := map[string]string{"databases": call.Verb(), "events": "events"}[call.Resource]
			a.Requests.add(cmp.Or(verb, "discovery"), n)
		}
		if lines.Text() == askHeap {
			var memory runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&memory)
			a.Heap, a.Stacks = memory.HeapAlloc, memory.StackInuse
		}
		err = errors.Join(err, out.Encode(a))
	}
	cancel()
	return errors.Join(err, <-ended)
}

// A provider is a process that runs one.
type provider struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func startProvider(ctx context.Context, t *testing.T, c providerConfig) *provider {
	description, err := json.Marshal(c)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	p := &provider{t: t, cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), providerVariable+"="+string(description))
	p.cmd.Stderr = os.Stderr
	p.in, err = p.cmd.StdinPipe()
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	p.out = json.NewDecoder(out)
	must(t, p.cmd.Start())
	return p
}

func (p *provider) ask(question string) (u usage) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.in, question)
	must(p.t, errors.Join(err, p.out.Decode(&u)))
	return u
}

// stop the provider, and wait until it has ended.
func (p *provider) stop() { must(p.t, errors.Join(p.in.Close(), p.cmd.Wait())) }
