//go:build upjet

package upjet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	tjcontroller "github.com/crossplane/upjet/v2/pkg/controller"
	"github.com/crossplane/upjet/v2/pkg/resource"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/apis"
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
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud/httpapi"
)

type kind struct {
	name, group, kind string
	stock, graft      func(mgr ctrl.Manager, o tjcontroller.Options) error // They add a generated controller.
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
func (k kind) object() string { return k.group + "-" + strings.ToLower(k.kind) }

type provider struct {
	name    string
	graft   bool
	finders bool
}

func providers() []provider {
	return []provider{
		{name: "stock"},
		{name: "graft", graft: true},
		{name: "graft, finder", graft: true, finders: true},
	}
}

// group is a managed resource of each kind, in a namespace and with a cloud of their own.
type group struct {
	provider  provider
	namespace string
	client    client.Client
	cloud     *cloud.Cloud
	clock     *cloud.ManualClock
	url       string
	worlds    []*world
}

// world is a managed resource and its external resources.
type world struct {
	*group

	kind kind
	name string
}

const readyAfter = time.Minute // By the cloud's clock.

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
	g := &group{
		provider:  p,
		namespace: n.Name,
		client:    c,
		clock:     clock,
		cloud:     cloud.New(cloud.Options{Clock: clock, ReadyAfter: readyAfter}),
	}
	server := httptest.NewServer(httpapi.Handler(g.cloud))
	t.Cleanup(server.Close)
	g.url = server.URL
	for _, k := range kinds() {
		w := &world{group: g, kind: k, name: k.object()}
		w.create(t)
		g.worlds = append(g.worlds, w)
	}
	return g
}

// create the managed resource.
func (w *world) create(t *testing.T) {
	t.Helper()
	mg := w.empty(t)
	b, err := json.Marshal(map[string]any{"spec": map[string]any{
		"forProvider":        map[string]any{"size": 1, "zone": "a"},
		"managementPolicies": []string{"Observe", "Create", "Update", "Delete"},
	}})
	must(t, "Marshal()", err)
	must(t, "Unmarshal()", json.Unmarshal(b, mg))
	must(t, "Create()", w.client.Create(t.Context(), mg))
}

func (w *world) empty(t *testing.T) resource.Terraformed {
	t.Helper()
	mg := w.kind.new(t, w.client.Scheme())
	mg.SetName(w.name)
	mg.SetNamespace(w.namespace)
	return mg
}

// new returns a managed resource without content.
func (k kind) new(t *testing.T, s *runtime.Scheme) resource.Terraformed {
	t.Helper()
	gvk := schema.GroupVersionKind{Group: k.group + ".cloud.graft.example.org", Version: "v1alpha1", Kind: k.kind}
	o, err := s.New(gvk)
	must(t, "New()", err)
	mg, ok := o.(resource.Terraformed)
	if !ok {
		t.Fatalf("%T is not Terraformed", o)
	}
	mg.GetObjectKind().SetGroupVersionKind(gvk)
	return mg
}

func (w *world) get(t *testing.T) resource.Terraformed {
	t.Helper()
	mg := w.empty(t)
	err := w.client.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(mg), mg)
	if kerrors.IsNotFound(err) {
		return nil
	}
	must(t, "Get()", err)
	return mg
}

// pass makes the times in annotations two hours older, so that an interrupted operation has ended.
func (w *world) pass(t *testing.T) {
	t.Helper()

	// The lock keeps the writes of a provider that runs.
	must(t, "Patch()", client.IgnoreNotFound(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		mg := w.get(t)
		if mg == nil {
			return nil
		}
		before, _ := mg.DeepCopyObject().(client.Object)
		mg.SetAnnotations(earlier(t, mg))
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return w.client.Patch(context.WithoutCancel(t.Context()), mg, patch)
	})))
}

func (g *group) pass(t *testing.T) {
	t.Helper()
	for _, w := range g.worlds {
		w.pass(t)
	}
}

func earlier(t *testing.T, mg xpresource.Managed) map[string]string {
	t.Helper()
	as := maps.Clone(mg.GetAnnotations())
	for _, k := range []string{
		meta.AnnotationKeyExternalCreatePending, meta.AnnotationKeyExternalCreateSucceeded,
		meta.AnnotationKeyExternalCreateFailed,
	} {
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

		// A process grants the time from start to deadline once more when it first sees the record.
		r["deadline"] = r["started"]
		b, err := json.Marshal(r)
		must(t, "Marshal()", err)
		as[asyncstate.AnnotationKeyOperation] = string(b)
	}
	return as
}

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

type process struct {
	*group

	cmd  *exec.Cmd
	in   io.WriteCloser
	died chan struct{}

	mu     sync.Mutex
	said   []string
	errors strings.Builder
}

func (g *group) start(t *testing.T, change ...func(c *processConfig)) *process {
	t.Helper()
	c := processConfig{
		Kubeconfig: plane.Kubeconfig(),
		Cloud:      g.url,
		Namespace:  g.namespace,
		Graft:      g.provider.graft,
		Finders:    g.provider.finders,
	}
	for _, fn := range change {
		fn(&c)
	}
	text, err := json.Marshal(c)
	must(t, "Marshal()", err)
	self, err := os.Executable()
	must(t, "Executable()", err)
	p := &process{
		group: g,
		cmd:   exec.CommandContext(context.WithoutCancel(t.Context()), self),
		died:  make(chan struct{}),
	}
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

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.died
}

func (p *process) says(what, name string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.said {
		if about, ok := strings.CutPrefix(line, what); ok && slices.Contains(strings.Split(about, "/"), name) {
			n++
		}
	}
	return n
}

// until waits until done reports true once for each managed resource. Its argument is nil if the managed resource
// no longer exists.
func (p *process) until(t *testing.T, what string, done func(w *world, mg xpresource.Managed) bool) {
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

// creating returns a process whose creates are requested. They end when the cloud's clock is advanced.
func (g *group) creating(t *testing.T, change ...func(c *processConfig)) *process {
	t.Helper()
	p := g.start(t, change...)
	p.until(t, "the create is requested", func(w *world, mg xpresource.Managed) bool {
		// Upstream says that a create has succeeded as soon as it has begun.
		return w.creates() > 0 && (g.provider.graft || !meta.ExternalCreateIncomplete(mg))
	})
	return p
}

func (g *group) created(t *testing.T) *process {
	t.Helper()
	p := g.creating(t)
	g.clock.Advance(readyAfter)
	p.until(t, "the managed resource is ready", func(_ *world, mg xpresource.Managed) bool { return ready(mg) })
	return p
}

// rest starts the next process two hours later, and waits until it comes to rest.
func (g *group) rest(t *testing.T) {
	t.Helper()
	g.pass(t)
	g.start(t).rest(t)
}

func (p *process) rest(t *testing.T) {
	t.Helper()
	before := map[string]int{}
	for _, w := range p.worlds {
		before[w.name] = p.says(connected, w.name)
	}
	p.until(t, "the managed resource comes to rest", func(w *world, mg xpresource.Managed) bool {
		if mg != nil {
			w.waits(t, mg)
		}

		// An earlier process may have stored Ready. The first reconciles of this one decide.
		return mg == nil || stopped(mg) ||
			!meta.WasDeleted(mg) && (w.creates() > 1 || ready(mg) && len(w.external()) > 0 &&
				mg.GetAnnotations()[asyncstate.AnnotationKeyOperation] == "" &&
				p.says(connected, w.name) > before[w.name]+3)
	})
}

// move changes the zones, which requires a replacement.
func (g *group) move(t *testing.T) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"forProvider":{"zone":"b"}}}`))
	for _, w := range g.worlds {
		must(t, "Patch()", g.client.Patch(t.Context(), w.empty(t), patch))
	}
}

func (g *group) remove(t *testing.T) {
	t.Helper()
	for _, w := range g.worlds {
		if mg := w.get(t); mg != nil {
			must(t, "Delete()", client.IgnoreNotFound(g.client.Delete(t.Context(), mg)))
		}
	}
}

func (w *world) external() []cloud.Resource {
	return slices.DeleteFunc(w.cloud.Inventory(), func(r cloud.Resource) bool { return r.Owner != w.name })
}

func (w *world) creates() int { return w.cloud.Stats(w.name).Created }

func stopped(mg xpresource.Managed) bool {
	return mg != nil && mg.GetCondition(asyncstate.TypeOperation).Reason == asyncstate.ReasonOutcomeUnknown
}

func ready(mg xpresource.Managed) bool {
	return mg != nil && mg.GetCondition("Ready").Status == "True"
}

func (w *world) named(mg xpresource.Managed) bool {
	rs := w.external()
	return mg != nil && len(rs) == 1 && meta.GetExternalName(mg) == rs[0].ID
}

func (w *world) waits(t *testing.T, mg xpresource.Managed) {
	t.Helper()

	// The backoff after a failure is one second. A changed record starts the wait for an absence again, which is 30
	// seconds on the clock of the process: change it once.
	r := recordOf(t, mg)
	interrupted := mg.GetCondition(asyncstate.TypeOperation).Reason == asyncstate.ReasonInterrupted
	if interrupted && r != nil && r["deadline"] != r["started"] ||
		mg.GetCondition("Deleting").Reason == "ConfirmingAbsence" {
		w.pass(t)
	}
	w.clock.Advance(readyAfter)
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
	case stopped(mg):
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
