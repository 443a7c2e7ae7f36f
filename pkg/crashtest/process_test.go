package crashtest

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/crashtest/internal/history"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/reservation"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

// An sdkClient calls the external system without HTTP.
type sdkClient struct {
	cloud *vmCloud
	named bool

	// step makes a call one step of the life. It is nil if the client is wrapped.
	step func(ctx context.Context, name string, call func() error) error
}

func (c *sdkClient) do(ctx context.Context, name string, call func()) error {
	if c.step == nil {
		call()
		return nil
	}
	return c.step(ctx, name, func() error {
		call()
		return nil
	})
}

func (c *sdkClient) Observe(ctx context.Context, b *v1alpha1.Bucket) (managed.ExternalObservation, error) {
	var v vm
	var exists bool
	err := c.do(ctx, "Get", func() { v, exists = c.cloud.Get(meta.GetExternalName(b)) })
	if err != nil || !exists {
		return managed.ExternalObservation{}, err
	}
	b.SetConditions(xpv2.Available())
	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: v.Size == sizeOf(b)}, nil
}

func (c *sdkClient) Create(ctx context.Context, b *v1alpha1.Bucket) (managed.ExternalCreation, error) {
	name := meta.GetExternalName(b)
	err := c.do(ctx, "Create", func() {
		if !c.named {
			name = c.cloud.NewName("vm")
		}
		c.cloud.Create(name, vm{ID: name, Owner: string(b.GetUID()), Size: sizeOf(b)})
	})
	if err == nil {
		meta.SetExternalName(b, name)
	}
	return managed.ExternalCreation{}, err
}

func (c *sdkClient) Update(ctx context.Context, b *v1alpha1.Bucket) (managed.ExternalUpdate, error) {
	name := meta.GetExternalName(b)
	return managed.ExternalUpdate{}, c.do(
		ctx, "Update", func() { c.cloud.Update(name, vm{ID: name, Owner: string(b.GetUID()), Size: sizeOf(b)}) },
	)
}

func (c *sdkClient) Delete(ctx context.Context, b *v1alpha1.Bucket) (managed.ExternalDelete, error) {
	return managed.ExternalDelete{}, c.do(ctx, "Delete", func() { c.cloud.Delete(meta.GetExternalName(b)) })
}

func (c *sdkClient) Disconnect(context.Context) error { return nil }

// A findingSDK can look up a create.
type findingSDK struct{ *sdkClient }

func (c findingSDK) Find(ctx context.Context, b *v1alpha1.Bucket, a asyncstate.Attempt) (asyncstate.Finding, error) {
	for _, v := range c.cloud.List() {
		if v.Owner == string(b.GetUID()) {
			return asyncstate.Found(v.ID), nil
		}
	}
	if time.Since(a.Started) < time.Minute {
		return asyncstate.Finding{}, nil
	}
	return asyncstate.Absent(), nil
}

// A hastySDK returns an error of its own after a create that the external system doesn't show yet.
type hastySDK struct{ *sdkClient }

func (c hastySDK) Create(ctx context.Context, b *v1alpha1.Bucket) (managed.ExternalCreation, error) {
	out, err := c.sdkClient.Create(ctx, b)
	if _, shown := c.cloud.Get(meta.GetExternalName(b)); err == nil && !shown {
		err = errors.New("cannot read the new resource")
	}
	return out, err
}

func sdkConnector(c managed.TypedExternalClient[*v1alpha1.Bucket]) managed.TypedExternalConnector[*v1alpha1.Bucket] {
	return managed.TypedExternalConnectorFn[*v1alpha1.Bucket](func(context.Context, *v1alpha1.Bucket) (
		managed.TypedExternalClient[*v1alpha1.Bucket], error,
	) {
		return c, nil
	})
}

// TestProcess proves each way to connect a provider: a right one has no finding, and one
// that stops in some lives has.
func TestProcess(t *testing.T) {
	graft := func(p *Process, o ...managed.ReconcilerOption) reconcile.Reconciler {
		return managed.NewReconciler(p.Manager(), v1alpha1.BucketManagedKind(), append([]managed.ReconcilerOption{
			managed.WithManagementPolicies(), managed.WithInitializers(),
			reservation.With("default"),
		}, o...)...)
	}
	cases := map[string]struct {
		reason string
		start  func(p *Process, c *vmCloud) (reconcile.Reconciler, error)
		only   string
		want   []Verdict
	}{
		"ConnectorWithoutResolver": {
			reason: "An answer that is lost takes the external name with it.",
			start: func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
				return graft(
					p, managed.WithTypedExternalConnector(Connector(p, sdkConnector(&sdkClient{cloud: c}))),
				), nil
			},
			want: []Verdict{SecondResource, Leak, Stopped},
		},
		"ConnectorUntypedFinder": {
			reason: "A Finder for any managed resource is asked, too.",
			start: func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
				connector := Connector(p, sdkConnector(untypedSDK{&sdkClient{cloud: c}}))
				return graft(
					p, managed.WithTypedExternalConnector(connector),
					resolve.With(resolve.FindWithTypedConnector(connector)),
				), nil
			},
		},
		"ConnectorError": {
			reason: "An error of the client's own leaves the external name that it has set.",
			start: func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
				connector := Connector(p, sdkConnector(hastySDK{&sdkClient{cloud: c}}))
				return graft(p, managed.WithTypedExternalConnector(connector)), nil
			},
			only: "create/late",
		},
		"Controller": {
			reason: "The reconciler of a controller is led, with the manager's options.",
			start: func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
				return p.Controller(func(m manager.Manager) error {
					r, err := graftNamed(p, vmAPI{http: &http.Client{Transport: p.Transport(c)}})
					if err != nil {
						return err
					}
					filter := resource.DesiredStateChanged()
					return ctrl.NewControllerManagedBy(
						m,
					).Named("bucket").WithEventFilter(filter).For(&v1alpha1.Bucket{}).Complete(r)
				})
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, nil)
			p.Start = tc.start
			var got []Verdict
			for _, r := range findings(t, p, Runs(30), Only(tc.only)) {
				for _, v := range r.Violations {
					if !slices.Contains(got, v.Verdict) {
						got = append(got, v.Verdict)
					}
					if !slices.Contains(tc.want, v.Verdict) {
						t.Errorf("\n%s\n%s: %s: %s", tc.reason, r.Name, v.Verdict, v.Text)
					}
				}
			}
			if len(got) < min(len(tc.want), 1) {
				t.Errorf("\n%s\nRun(...): want some of %v, got none", tc.reason, tc.want)
			}
		})
	}
}

// A panickingSDK panics in each create, or only if the resource exists.
type panickingSDK struct {
	*sdkClient

	always bool
}

func (c panickingSDK) Create(ctx context.Context, b *v1alpha1.Bucket) (managed.ExternalCreation, error) {
	if _, exists := c.cloud.Get(b.GetName()); c.always || exists {
		panic("ouch")
	}
	return c.sdkClient.Create(ctx, b)
}

// TestProcess_Panic proves that a panic in a call that can run code of the provider is the provider's.
func TestProcess_Panic(t *testing.T) {
	type connector = managed.TypedExternalConnector[*v1alpha1.Bucket]
	cases := map[string]struct {
		reason  string
		connect func(p *Process, c *vmCloud) connector
		only    string
		want    []string
	}{
		"Connector": {
			reason: "A client that is wrapped is a part of the provider.",
			connect: func(p *Process, c *vmCloud) connector {
				return Connector(p, sdkConnector(panickingSDK{&sdkClient{cloud: c, named: true}, true}))
			},
			only: "create/undisturbed",
			want: []string{"never ready, panic"},
		},
		"Step": {
			reason: "A call may have code of the provider around it.",
			connect: func(p *Process, c *vmCloud) connector {
				return sdkConnector(&sdkClient{
					cloud: c, named: true,
					step: func(ctx context.Context, name string, _ func() error) error {
						return p.Step(ctx, name, func() error { panic("ouch") })
					},
				})
			},
			only: "create/undisturbed",
			want: []string{"never ready, panic"},
		},
		"Goroutine": {
			reason: "A panic on a goroutine that the provider starts should end only the life.",
			connect: func(p *Process, c *vmCloud) connector {
				return sdkConnector(&sdkClient{
					cloud: c, named: true,
					step: func(ctx context.Context, name string, _ func() error) error {
						done := make(chan error)
						go func() { done <- p.Step(ctx, name, func() error { panic("ouch") }) }()
						return <-done
					},
				})
			},
			only: "create/undisturbed",
			want: []string{"never ready, panic"},
		},
		"DeadProcess": {
			reason: "A process that is dead can't panic when its call arrives.",
			connect: func(p *Process, c *vmCloud) connector {
				return Connector(p, sdkConnector(panickingSDK{&sdkClient{cloud: c, named: true}, false}))
			},
			only: "create/crash-inflight",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, nil)
			p.Start = func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
				m := p.Manager()
				return managed.NewReconciler(m, v1alpha1.BucketManagedKind(),
					managed.WithInitializers(managed.NewNameAsExternalName(m.GetClient())),
					managed.WithDeterministicExternalName(true),
					managed.WithTypedExternalConnector(tc.connect(p, c)),
				), nil
			}
			p.Scenarios = Scenarios()[:1]
			var got []string
			for _, r := range findings(t, p, Only(tc.only)) {
				got = append(got, verdicts(r.Violations))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nRun(...): -want verdicts, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestProcess_Watch proves that a process reconciles the requests that a source adds to its work queue.
func TestProcess_Watch(t *testing.T) {
	one := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "one"}}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	cases := map[string]struct {
		reason string
		add    func(q queue)
	}{
		"Add":            {"An event should be reconciled at once.", func(q queue) { q.Add(one) }},
		"AddAfter":       {"A later event should be reconciled then.", func(q queue) { q.AddAfter(one, time.Minute) }},
		"AddRateLimited": {"A failed event should be reconciled again.", func(q queue) { q.AddRateLimited(one) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := vmProvider(t, func(p *Process, a vmAPI) (reconcile.Reconciler, error) {
				r, asked := rightPlain(p, a), &atomic.Bool{}
				r.before = func(context.Context, *v1alpha1.Bucket) (bool, error) { return !asked.Load(), nil }
				return r, p.Watch(source.Func(func(ctx context.Context, q queue) error {
					go func() {
						time.Sleep(time.Second)
						asked.Store(true)
						tc.add(q)
					}()
					return nil
				}))
			})
			p.Scenarios = Scenarios()[:1]
			for _, r := range findings(t, p, Runs(0)) {
				t.Errorf("\n%s\n%s: %v", tc.reason, r.Name, r.Violations)
			}
		})
	}
}

// TestResources proves how a fake external system handles names.
func TestResources(t *testing.T) {
	r := &Resources[string]{}
	r.Lag(time.Hour)
	hidden := r.Create("one", "a")
	r.Lag(0)
	cases := map[string]struct {
		reason    string
		got, want bool
	}{
		"Create":        {"A free name can be taken, although the resource is hidden.", hidden, true},
		"CreateTaken":   {"A name that is taken can't be taken again.", r.Create("one", "b"), false},
		"UpdateMissing": {"What doesn't exist can't be changed.", r.Update("two", "b"), false},
		"DeleteMissing": {"What doesn't exist can't be deleted.", r.Delete("two"), false},
		"Update":        {"A hidden resource can be changed.", r.Update("one", "c"), true},
		"ListHidden":    {"A hidden resource is not listed.", len(r.List()) > 0, false},
		"Delete":        {"A hidden resource can be deleted.", r.Delete("one"), true},
		"CreateAgain":   {"The name is free then.", r.Create("one", "d"), true},
		"List":          {"A resource is listed unless it is hidden.", slices.Equal(r.List(), []string{"d"}), true},
		"Made":          {"Each creation is listed.", slices.Equal(r.Made(), []string{"one", "one"}), true},
	}
	for name, tc := range cases {
		if tc.got != tc.want {
			t.Errorf("%s: %s Want %t, got %t", name, tc.reason, tc.want, tc.got)
		}
	}
	if _, shown := r.Get("one"); !shown {
		t.Error("Get(...): want the resource, which is not hidden")
	}
}

// An untypedSDK has the optional methods of a client for any managed resource.
type untypedSDK struct{ *sdkClient }

func (c untypedSDK) Find(ctx context.Context, mg resource.Managed, a asyncstate.Attempt) (asyncstate.Finding, error) {
	b, ok := mg.(*v1alpha1.Bucket)
	if !ok {
		return asyncstate.Finding{}, errors.Errorf("%T is not a Bucket", mg)
	}
	return findingSDK(c).Find(ctx, b, a)
}

func (c untypedSDK) Resume(context.Context, resource.Managed, asyncstate.Attempt) error { return nil }

func (c untypedSDK) SearchHint(mg resource.Managed, _ asyncstate.Attempt) string {
	return "any " + mg.GetName()
}

// A resumingSDK can resume a create by its handle.
type resumingSDK struct{ *sdkClient }

func (c resumingSDK) Create(ctx context.Context, b *v1alpha1.Bucket) (managed.ExternalCreation, error) {
	out, err := c.sdkClient.Create(ctx, b)
	if err == nil {
		err = asyncstate.SetHandle(ctx, meta.GetExternalName(b))
	}
	return out, err
}

func (c resumingSDK) Resume(ctx context.Context, _ *v1alpha1.Bucket, a asyncstate.Attempt) error {
	return asyncstate.SetExternalName(ctx, a.Handle)
}

func (c resumingSDK) SearchHint(b *v1alpha1.Bucket, _ asyncstate.Attempt) string {
	return "typed " + b.GetName()
}

// A findingAndResumingSDK can also look up a create.
type findingAndResumingSDK struct{ resumingSDK }

func (c findingAndResumingSDK) Find(
	ctx context.Context, b *v1alpha1.Bucket, a asyncstate.Attempt,
) (asyncstate.Finding, error) {
	return findingSDK{c.sdkClient}.Find(ctx, b, a)
}

// TestConnector_OptionalMethods proves that a wrapped client has the optional methods of its own client, and no others.
func TestConnector_OptionalMethods(t *testing.T) {
	type methods struct {
		Find, Resume bool
		Hint         string
	}
	cases := map[string]struct {
		reason string
		client managed.TypedExternalClient[*v1alpha1.Bucket]
		want   methods
	}{
		"Plain":   {"A reconciler must not call a method that does not exist.", &sdkClient{}, methods{}},
		"Finder":  {"A reconciler has to find the Finder.", findingSDK{&sdkClient{}}, methods{Find: true}},
		"Resumer": {"A reconciler has to find the Resumer.", resumingSDK{}, methods{Resume: true, Hint: "typed one"}},
		"FinderAndResumer": {
			"A reconciler has to find both.",
			findingAndResumingSDK{},
			methods{Find: true, Resume: true, Hint: "typed one"},
		},
		"Untyped": {
			"A method may take any managed resource.",
			untypedSDK{&sdkClient{}},
			methods{Find: true, Resume: true, Hint: "any one"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := v1alpha1.NewBucket("default", "one")
			c, err := Connector(nil, sdkConnector(tc.client)).Connect(context.Background(), b)
			if err != nil {
				t.Fatal(err)
			}
			got := methods{}
			_, got.Find = c.(asyncstate.TypedFinder[*v1alpha1.Bucket])
			_, got.Resume = c.(asyncstate.TypedResumer[*v1alpha1.Bucket])
			if h, ok := c.(interface {
				SearchHint(b *v1alpha1.Bucket, a asyncstate.Attempt) string
			}); ok {
				got.Hint = h.SearchHint(b, asyncstate.Attempt{})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nConnect(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestConnector_Resume proves that Resume of a wrapped client is a step that can end well.
func TestConnector_Resume(t *testing.T) {
	p := vmProvider(t, nil)
	p.Start = func(p *Process, c *vmCloud) (reconcile.Reconciler, error) {
		tracker := asyncstate.NewTracker(asyncstate.WithTimeout(5 * time.Minute))
		if err := errors.Wrap(p.Manager().Add(tracker), "cannot add the tracker"); err != nil {
			return nil, err
		}
		sdk := findingAndResumingSDK{resumingSDK{&sdkClient{cloud: c}}}
		return managed.NewReconciler(p.Manager(), v1alpha1.BucketManagedKind(),
			managed.WithInitializers(),
			managed.WithTypedExternalConnector(Connector(p, sdkConnector(sdk))),
			asyncstate.With(tracker),
		), p.Watch(tracker.Source())
	}
	p.Scenarios = Scenarios()[:1]
	s, err := newSweep(t, p, []Option{Runs(30)})
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := s.run()
	if err != nil {
		t.Fatal(err)
	}
	resumes := false
	for _, r := range all {
		if len(r.Violations) > 0 {
			t.Errorf("A provider that is right should have no finding: %s: %v", r.Name, r.Violations)
		}
		resumes = resumes || slices.ContainsFunc(
			r.events, func(e *history.Event) bool { return e.Request.String() == "Resume one" },
		)
	}
	if !resumes {
		t.Error("Resume should be a step of a process that follows a crash.")
	}
}

// TestCRDs proves that defaults and scope come from the provider's CRDs.
func TestCRDs(t *testing.T) {
	dir := t.TempDir()
	crd := `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: buckets.sample.graft.crossplane.io}
spec:
  group: sample.graft.crossplane.io
  names: {kind: Bucket, plural: buckets}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              forProvider:
                type: object
                properties:
                  region: {type: string, default: north}
  - name: v1alpha0
    served: true
    storage: false
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: volumes.sample.graft.crossplane.io}
spec:
  group: sample.graft.crossplane.io
  names: {kind: Volume, plural: volumes}
  scope: Namespaced
  versions: [{name: v1alpha1, served: true, storage: true}]
---
kind: Other
`
	below := filepath.Join(dir, "v1.yaml") // A folder, too, may have such a name.
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(below, "bucket.yaml"), []byte(crd), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("CRDs: {generated}: yes"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := vmProvider(t, graftNamed)
	p.CRDs, p.Scenarios = dir, Scenarios()[:1]
	p.Invariant = func(o client.Object, c *vmCloud, _ client.Reader) error {
		if b, ok := o.(*v1alpha1.Bucket); !ok || b.Spec.ForProvider.Region != "north" || len(c.Made()) != 1 {
			return errors.Errorf("the default is missing in %v", o)
		}
		return nil
	}
	for _, r := range findings(t, p, Runs(10)) {
		t.Errorf("%s: %+v", r.Name, r.Violations)
	}
}

// TestBeside proves that a provider reads the objects beside its managed resource as from a real API server.
func TestBeside(t *testing.T) {
	cases := map[string]struct {
		reason string
		beside client.Object
		crds   string
		read   func(ctx context.Context, kube client.Client, b *v1alpha1.Bucket) error
	}{
		"ClusterScoped": {
			reason: "The namespace of a request for a cluster-scoped object should be ignored.",
			beside: &v1alpha1.ClusterProviderConfig{
				ProviderConfig: v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
			},
			read: func(ctx context.Context, kube client.Client, b *v1alpha1.Bucket) error {
				key := client.ObjectKey{Namespace: b.GetNamespace(), Name: "default"}
				return kube.Get(ctx, key, &v1alpha1.ClusterProviderConfig{})
			},
		},
		"Default": {
			reason: "A field that is not set should have the default of its CRD.",
			beside: &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}},
			crds: `{
  "kind": "CustomResourceDefinition",
  "spec": {
    "group": "sample.graft.crossplane.io",
    "names": {"kind": "ProviderConfig", "plural": "providerconfigs"},
    "scope": "Namespaced",
    "versions": [{"name": "v1alpha1", "schema": {"openAPIV3Schema": {
      "type": "object",
      "properties": {
        "spec": {"type": "object", "properties": {"account": {"type": "string", "default": "main"}}}
      }
    }}}]
  }
}
`,
			read: func(ctx context.Context, kube client.Client, b *v1alpha1.Bucket) error {
				pc, key := &v1alpha1.ProviderConfig{}, client.ObjectKey{Namespace: b.GetNamespace(), Name: "default"}
				if err := kube.Get(ctx, key, pc); err != nil || pc.Spec.Account != "main" {
					return errors.Errorf("want account main, got %q and error %v", pc.Spec.Account, err)
				}
				return nil
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := plainProvider(t, func(_ *Process, r *plain) {
				r.before = func(ctx context.Context, b *v1alpha1.Bucket) (bool, error) {
					return false, tc.read(ctx, r.kube, b)
				}
			})
			p.Beside, p.Scenarios = []client.Object{tc.beside}, Scenarios()[:1]
			if tc.crds != "" {
				p.CRDs = t.TempDir()
				if err := os.WriteFile(filepath.Join(p.CRDs, "crds.json"), []byte(tc.crds), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range findings(t, p, Runs(10)) {
				t.Errorf("\n%s\n%s: %v", tc.reason, r.Name, r.Violations)
			}
		})
	}
}
