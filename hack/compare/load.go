package main

import (
	"bufio"
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
	"time"

	upstream "github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	Workers                 int

	// Controllers to add, of a kind without managed resources.
	Controllers int
}

// grace is how long a new external resource may be missing, which it never is here.
const grace = time.Second

// The questions on a provider's standard input, a line each.
const (
	askUsage = "usage"
	askHeap  = "heap" // After a garbage collection.
)

// A spent counts the resources that a provider has used since its start.
type spent struct {
	Reconciles int
	Requests   map[string]int
	CPU        time.Duration
	Heap       uint64
	Stacks     uint64
}

func (s spent) requests(match func(verb string) bool) int {
	n := 0
	for verb, count := range s.Requests {
		if match(verb) {
			n += count
		}
	}
	return n
}

func all(string) bool { return true }

func statusWrites(verb string) bool { return strings.HasSuffix(verb, " status") }

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
	if err := json.Unmarshal([]byte(description), &c); err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	requests := &apicalls.Counter{}
	cfg.QPS = -1 // No limit of client-go's is measured.
	cfg.Wrap(requests.Wrap)
	s := kruntime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		return err
	}
	m, err := process.NewManager(cfg, ctrl.Options{Scheme: s})
	if err != nil {
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: c.Workers}
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
		if err := process.Control(m, kind, r, limiter, c.Workers); err != nil {
			return err
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	out := json.NewEncoder(answers)

	for lines := bufio.NewScanner(questions); lines.Scan(); {
		a := spent{CPU: ownCPU(), Reconciles: connector.Disconnects(), Requests: map[string]int{}}
		for call, n := range requests.Counted() {
			a.Requests[verb(call)] += n
		}

		if lines.Text() == askHeap {
			var memory runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&memory)
			a.Heap, a.Stacks = memory.HeapAlloc, memory.StackInuse
		}

		if err := out.Encode(a); err != nil {
			break
		}
	}

	cancel()
	return <-ended
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// verb returns the verb of a request for a managed resource, or the kind of another request.
func verb(c apicalls.Call) string {
	switch c.Resource {
	case "databases":
		return c.Verb()
	case "events":
		return "events"
	default:
		return "discovery"
	}
}

// A provider is a process that runs one.
type provider struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func startProvider(ctx context.Context, c providerConfig) (*provider, error) {
	description, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &provider{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), providerVariable+"="+string(description))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = json.NewDecoder(out)
	return p, p.cmd.Start()
}

func (p *provider) ask(question string) (spent, error) {
	var a spent
	if _, err := fmt.Fprintln(p.in, question); err != nil {
		return a, fmt.Errorf("cannot ask the provider: %w", err)
	}
	if err := p.out.Decode(&a); err != nil {
		return a, fmt.Errorf("cannot ask the provider: %w", err)
	}
	return a, nil
}

// stop the provider, and wait until it has ended.
func (p *provider) stop() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// populate adds managed resources until there are n, and returns when all are ready.
func (w *world) populate(ctx context.Context, prefix string, n int) error {
	p, err := w.start(ctx, graftSide, time.Hour)
	if err != nil {
		return err
	}
	err = errors.Join(
		inParallel(n, func(i int) error {
			return client.IgnoreAlreadyExists(w.api.Create(ctx, v1alpha1.NewDatabase(fmt.Sprintf("%s-%d", prefix, i))))
		}),
		w.until(ctx, func() (bool, error) {
			ready, err := w.ready(ctx, prefix)
			return ready == n, err
		}))
	return errors.Join(err, p.stop())
}

// ready counts the managed resources of a prefix that are.
func (w *world) ready(ctx context.Context, prefix string) (int, error) {
	var l v1alpha1.DatabaseList
	if err := w.api.List(ctx, &l); err != nil {
		return 0, err
	}
	n := 0

	for i := range l.Items {
		ready := l.Items[i].GetCondition(xpv2.TypeReady).Status == corev1.ConditionTrue
		if ready && strings.HasPrefix(l.Items[i].Name, prefix+"-") {
			n++
		}
	}
	return n, nil
}

// until a condition holds.
func (w *world) until(ctx context.Context, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it did not come to rest within %s", patience))
	defer cancel()

	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// inParallel calls fn for each number below n, 16 at a time.
func inParallel(n int, fn func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(16)
	for i := range n {
		g.Go(func() error { return fn(i) })
	}
	return g.Wait()
}
