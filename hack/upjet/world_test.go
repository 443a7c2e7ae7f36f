//go:build upjet

package upjet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	xpcontroller "github.com/crossplane/crossplane-runtime/v2/pkg/controller"
	"github.com/crossplane/crossplane-runtime/v2/pkg/feature"
	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	upjetconfig "github.com/crossplane/upjet/v2/pkg/config"
	tjcontroller "github.com/crossplane/upjet/v2/pkg/controller"
	"github.com/crossplane/upjet/v2/pkg/resource"
	tfsetup "github.com/crossplane/upjet/v2/pkg/terraform"
	"github.com/pkg/errors"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	crconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/apis"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/config"
	graftfwbucket "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/graft/framework/bucket"
	graftfwserver "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/graft/framework/server"
	graftsdkbucket "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/graft/sdk/bucket"
	graftsdkserver "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/graft/sdk/server"
	stockfwbucket "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/stock/framework/bucket"
	stockfwserver "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/stock/framework/server"
	stocksdkbucket "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/stock/sdk/bucket"
	stocksdkserver "github.com/crossplane-graft/graft/pkg/hack/upjet/controllers/stock/sdk/server"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/terraform"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/embedded"
)

// setup adds a generated controller to a manager.
type setup func(mgr ctrl.Manager, o tjcontroller.Options) error

// kind is one of the four resources.
type kind struct {
	name, group, kind string
	stock, graft      setup
}

func kinds() []kind {
	return []kind{
		{terraform.SDKServer, "sdk", "Server", stocksdkserver.Setup, graftsdkserver.Setup},
		{terraform.FrameworkServer, "framework", "Server", stockfwserver.Setup, graftfwserver.Setup},
		{terraform.SDKBucket, "sdk", "Bucket", stocksdkbucket.Setup, graftsdkbucket.Setup},
		{terraform.FrameworkBucket, "framework", "Bucket", stockfwbucket.Setup, graftfwbucket.Setup},
	}
}

func (k kind) assigned() bool { return k.kind == "Server" }

// provider is how a provider is built.
type provider struct {
	name    string
	graft   bool
	finders bool
}

func providers() []provider {
	return []provider{{name: "stock"}, {name: "graft", graft: true}, {name: "graft, finder", graft: true, finders: true}}
}

var errDead = errors.New("the process is dead")

// world is what outlives processes.
type world struct {
	kind     kind
	provider provider

	// namespace and name of the managed resource.
	namespace, name string

	admin client.Client
	cloud *cloud.Cloud

	clock *cloud.ManualClock

	// api is nil with a real API server.
	api *embedded.Server
}

const (
	managedName = "web"
	namespace   = "default"

	// readyAfter is how long a create takes, by the cloud's clock.
	readyAfter = time.Minute
)

func newWorld(t *testing.T, k kind, p provider) *world {
	t.Helper()
	s := runtime.NewScheme()
	must(t, "AddToScheme()", apis.AddToScheme(s))
	definitions, err := readCRDs()
	must(t, "readCRDs()", err)
	api, err := embedded.New(embedded.Options{Scheme: s, CRDs: definitions})
	must(t, "New()", err)
	clock := cloud.NewManualClock(time.Now())
	w := &world{
		kind: k, provider: p, namespace: namespace, name: managedName, admin: api.Admin(), api: api,
		clock: clock, cloud: cloud.New(cloud.Options{Clock: clock, ReadyAfter: readyAfter}),
	}
	w.create(t)
	return w
}

// create the managed resource. The cloud counts its external resources by its name, for
// which it has a tag, whatever initializers there are.
func (w *world) create(t *testing.T) {
	t.Helper()
	mg := w.empty(t)
	b, err := json.Marshal(map[string]any{"spec": map[string]any{
		"forProvider":        map[string]any{"size": 1, "tags": map[string]string{"crossplane-name": w.name}},
		"managementPolicies": []string{"Observe", "Create", "Update", "Delete"},
	}})
	must(t, "Marshal()", err)
	must(t, "Unmarshal()", json.Unmarshal(b, mg))
	must(t, "Create()", w.admin.Create(t.Context(), mg))
}

func readCRDs() ([]*extv1.CustomResourceDefinition, error) {
	files, err := filepath.Glob("crds/*.yaml")
	if err != nil {
		return nil, err
	}
	out := make([]*extv1.CustomResourceDefinition, 0, len(files))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		crd := &extv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(b, crd); err != nil {
			return nil, err
		}
		out = append(out, crd)
	}
	return out, nil
}

// empty managed resource of the world's kind and name.
func (w *world) empty(t *testing.T) resource.Terraformed {
	t.Helper()
	gvk := schema.GroupVersionKind{Group: w.kind.group + ".cloud.graft.example.org", Version: "v1alpha1", Kind: w.kind.kind}
	o, err := w.admin.Scheme().New(gvk)
	must(t, "New()", err)
	mg, ok := o.(resource.Terraformed)
	if !ok {
		t.Fatalf("%T is not Terraformed", o)
	}
	mg.GetObjectKind().SetGroupVersionKind(gvk)
	mg.SetName(w.name)
	mg.SetNamespace(w.namespace)
	return mg
}

// get the managed resource. It is nil if it no longer exists.
func (w *world) get(t *testing.T) resource.Terraformed {
	t.Helper()
	mg := w.empty(t)
	err := w.admin.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(mg), mg)
	if kerrors.IsNotFound(err) {
		return nil
	}
	must(t, "Get()", err)
	return mg
}

// pass two hours: what annotations say happened is two hours longer ago, and what an
// interrupted operation may take is over.
func (w *world) pass(t *testing.T) {
	t.Helper()

	// A provider that runs must not lose what it writes meanwhile.
	must(t, "Patch()", client.IgnoreNotFound(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		mg := w.get(t)
		if mg == nil {
			return nil
		}
		before, _ := mg.DeepCopyObject().(client.Object)
		mg.SetAnnotations(earlier(t, mg))
		return w.admin.Patch(context.WithoutCancel(t.Context()), mg, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})))
}

// earlier returns the annotations of a managed resource two hours earlier.
func earlier(t *testing.T, mg xpresource.Managed) map[string]string {
	t.Helper()
	as := maps.Clone(mg.GetAnnotations())
	for _, k := range []string{meta.AnnotationKeyExternalCreatePending, meta.AnnotationKeyExternalCreateSucceeded, meta.AnnotationKeyExternalCreateFailed} {
		if at, err := time.Parse(time.RFC3339Nano, as[k]); err == nil {
			as[k] = at.Add(-2 * time.Hour).Format(time.RFC3339Nano)
		}
	}
	if r := recordOf(t, mg); r != nil {
		for _, k := range []string{"started", "deadline", "ended", "pending"} {
			s, _ := r[k].(string)
			if at, err := time.Parse(time.RFC3339Nano, s); err == nil {
				r[k] = at.Add(-2 * time.Hour).Format(time.RFC3339Nano)
			}
		}

		// A process counts what an operation may take from when it first sees the record.
		r["deadline"] = r["started"]
		b, err := json.Marshal(r)
		must(t, "Marshal()", err)
		as[asyncstate.AnnotationKeyOperation] = string(b)
	}
	return as
}

// recordOf the operation of a managed resource.
func recordOf(t *testing.T, mg xpresource.Managed) map[string]any {
	t.Helper()
	text, ok := mg.GetAnnotations()[asyncstate.AnnotationKeyOperation]
	if !ok {
		return nil
	}
	r := map[string]any{}
	must(t, "Unmarshal()", json.Unmarshal([]byte(text), &r))
	return r
}

// process of the provider.
type process struct {
	*world

	reconciler reconcile.Reconciler
	states     *tjcontroller.OperationTrackerStore
	config     *upjetconfig.Resource

	// runnables are those of the manager but the controller.
	runnables []manager.Runnable

	mu      sync.Mutex
	dead    bool
	refuses bool // writes to the API server
	refused int  // writes that were
	steps   int
	killAt  int // step, from 1
	after   bool
	at      string // what was done when it was killed
}

type processOption func(*process)

// killedAt kills a process before or after a step: a request to the API server, or a
// call of the cloud.
func killedAt(n int, after bool) processOption {
	return func(p *process) { p.killAt, p.after = n, after }
}

// configured changes the configuration of the resource.
func configured(change func(r *upjetconfig.Resource)) processOption {
	return func(p *process) { change(p.config) }
}

func (w *world) start(t *testing.T, o ...processOption) *process {
	t.Helper()
	cfg, add := config.Stock(), w.kind.stock
	if w.provider.graft {
		cfg, add = config.Graft(), w.kind.graft
	}
	p := &process{world: w, states: tjcontroller.NewOperationStore(logging.NewNopLogger()), config: cfg.Resources[w.kind.name]}
	if w.provider.graft && !w.provider.finders {
		p.config.InitializerFns = nil
	}
	for _, o := range o {
		o(p)
	}
	f := &feature.Flags{}
	f.Enable(feature.EnableBetaManagementPolicies)
	c := interceptor.NewClient(w.api.Client(), embedded.Intercept(p.request))
	must(t, "Setup()", add(&capturing{Manager: w.api.ManagerFor(c), process: p}, tjcontroller.Options{
		Options: xpcontroller.Options{
			Logger:            logging.NewNopLogger(),
			GlobalRateLimiter: ratelimiter.NewGlobal(1000),
			PollInterval:      time.Minute,
			Features:          f,
		},
		Provider:              cfg,
		OperationTrackerStore: p.states,
		SetupFn: func(context.Context, client.Client, xpresource.Managed) (tfsetup.Setup, error) {
			s := &session{inner: w.cloud.Session(""), process: p}
			return tfsetup.Setup{Meta: s, FrameworkProvider: terraform.FrameworkProvider(s)}, nil
		},
	}))
	return p
}

// capturing is a manager that keeps what it is given.
type capturing struct {
	manager.Manager

	process *process
}

func (m *capturing) Add(r manager.Runnable) error {
	if c, ok := r.(reconcile.Reconciler); ok {
		m.process.reconciler = c
		return nil
	}
	m.process.runnables = append(m.process.runnables, r)
	return nil
}

func (m *capturing) GetCache() cache.Cache { return nil }

func (m *capturing) GetControllerOptions() crconfig.Controller {
	return crconfig.Controller{SkipNameValidation: ptr.To(true)}
}

// step is anything by which a process reaches others.
func (p *process) step(name string, write bool, do func() error) error {
	p.mu.Lock()
	switch {
	case p.dead:
		p.mu.Unlock()
		return errDead
	case write && p.refuses:
		p.refused++
		p.mu.Unlock()
		return kerrors.NewServiceUnavailable("the API server is away")
	}
	p.steps++
	if p.steps == p.killAt && !p.after {
		p.dead, p.at = true, "before "+name
		p.mu.Unlock()
		return errDead
	}
	last := p.steps == p.killAt
	p.mu.Unlock()
	err := do()
	p.mu.Lock()
	defer p.mu.Unlock()
	if last {
		p.dead, p.at = true, "after "+name
	}
	if p.dead {
		return errDead
	}
	return err
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *process) refuse(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = yes
}

func (p *process) hasRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused > 0
}

// request of the process to the API server.
func (p *process) request(_ context.Context, c embedded.Call, serve func() error) error {
	return p.step(c.String(), c.Writes(), serve)
}

// session of the process with the cloud.
type session struct {
	inner   *cloud.Session
	process *process
}

func (s *session) Create(ctx context.Context, req cloud.CreateRequest) (r cloud.Resource, err error) {
	err = s.process.step("Create", false, func() error { r, err = s.inner.Create(ctx, req); return err })
	return r, err
}

func (s *session) Get(ctx context.Context, id string) (r cloud.Resource, err error) {
	err = s.process.step("Get", false, func() error { r, err = s.inner.Get(ctx, id); return err })
	return r, err
}

func (s *session) Update(ctx context.Context, id string, ps map[string]string) (r cloud.Resource, err error) {
	err = s.process.step("Update", false, func() error { r, err = s.inner.Update(ctx, id, ps); return err })
	return r, err
}

func (s *session) Delete(ctx context.Context, id string) error {
	return s.process.step("Delete", false, func() error { return s.inner.Delete(ctx, id) })
}

func (s *session) List(ctx context.Context, f cloud.Filter) (rs []cloud.Resource, err error) {
	err = s.process.step("List", false, func() error { rs, err = s.inner.List(ctx, f); return err })
	return rs, err
}

// reconcile once. What it returns is for the work queue.
func (p *process) reconcile(t *testing.T) {
	t.Helper()
	_, _ = p.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: managedName}})
}

const (
	patience = time.Minute
	tick     = 2 * time.Millisecond
)

// until reconciles until something is so.
func (p *process) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	await(t, what, func() bool { p.reconcile(t); return so() })
}

// await something that a goroutine does.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for end := time.Now().Add(patience); !so(); <-ticker.C {
		if time.Now().After(end) {
			t.Fatalf("waited %s for: %s", patience, what)
		}
	}
}

// external resources of the managed resource.
func (w *world) external() []cloud.Resource {
	return slices.DeleteFunc(w.cloud.Inventory(), func(r cloud.Resource) bool { return r.Owner != w.name })
}

// creates of the managed resource so far.
func (w *world) creates() int { return w.cloud.Stats(w.name).Created }

func (w *world) requested() bool { return w.creates() > 0 }

// stopped says why a managed resource waits for a person, if it does.
func stopped(mg xpresource.Managed) string {
	if mg == nil {
		return ""
	}
	if c := mg.GetCondition(asyncstate.TypeOperation); c.Reason == asyncstate.ReasonResultUnknown {
		return c.Message
	}
	return ""
}

func ready(mg xpresource.Managed) bool {
	return mg != nil && mg.GetCondition("Ready").Status == "True"
}

// named reports whether the name of the only external resource is stored.
func (w *world) named(mg xpresource.Managed) bool {
	rs := w.external()
	return mg != nil && len(rs) == 1 && meta.GetExternalName(mg) == rs[0].ID
}

// waits lets time pass if a managed resource waits for it.
func (w *world) waits(t *testing.T, mg xpresource.Managed) {
	t.Helper()

	// A failure is backed off from for a second only.
	if mg.GetCondition(asyncstate.TypeOperation).Reason == asyncstate.ReasonInterrupted || mg.GetCondition("Deleting").Reason == "ConfirmingAbsence" {
		w.pass(t)
	}
	w.clock.Advance(readyAfter)
}

// rested reports whether nothing more is to be expected of a managed resource that was
// reconciled since, or of the one that was deleted.
func (w *world) rested(mg xpresource.Managed) bool {
	return mg == nil || stopped(mg) != "" || w.creates() > 1 ||
		!meta.WasDeleted(mg) && ready(mg) && len(w.external()) > 0 && mg.GetAnnotations()[asyncstate.AnnotationKeyOperation] == ""
}

// rest lets the last process go on until nothing more is to be expected, and returns
// the verdict. Two hours pass before, and whenever a managed resource waits for time.
func (p *process) rest(t *testing.T) string {
	t.Helper()
	p.pass(t)
	p.until(t, "the managed resource comes to rest", func() bool {
		mg := p.get(t)
		if mg != nil {
			p.waits(t, mg)
		}
		return p.rested(mg)
	})

	// Whatever a few more reconciles do.
	for range 5 {
		p.reconcile(t)
	}
	return p.verdict(t)
}

func (w *world) verdict(t *testing.T) string {
	t.Helper()
	mg, left := w.get(t), len(w.external())
	switch {
	case mg == nil && left == 0:
		return "deleted"
	case mg == nil:
		return "leaked"
	case w.creates() > 1:
		return fmt.Sprint(w.creates())
	case stopped(mg) != "":
		return "1, stops"
	case w.named(mg):
		return "1, stored"
	default:
		return "1, not stored"
	}
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
