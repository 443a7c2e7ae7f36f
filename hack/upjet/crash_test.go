//go:build upjet

package upjet_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	xpresource "github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	upjetconfig "github.com/crossplane/upjet/v2/pkg/config"
	tjcontroller "github.com/crossplane/upjet/v2/pkg/controller"
	tfsetup "github.com/crossplane/upjet/v2/pkg/terraform"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/crashtest"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/apis"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/config"
	"github.com/crossplane-graft/graft/pkg/hack/upjet/terraform"
	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// A crashCloud is the cloud of one life.
type crashCloud struct {
	*cloud.Cloud

	mu   sync.Mutex
	made []string
}

// Made implements crashtest.Cloud.
func (c *crashCloud) Made() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.made)
}

// Exists implements crashtest.Cloud.
func (c *crashCloud) Exists() map[string]string {
	out := map[string]string{}
	for _, r := range c.Inventory() {
		out[r.ID] = "size=" + r.Properties["size"]
	}
	return out
}

// A steppedSession makes each call one step of the process.
type steppedSession struct {
	terraform.Session

	process *crashtest.Process
	cloud   *crashCloud
}

func (s *steppedSession) Create(ctx context.Context, req cloud.CreateRequest) (r cloud.Resource, err error) {
	err = s.process.Step(ctx, "create", func() error {
		r, err = s.Session.Create(ctx, req)
		if err == nil {
			s.cloud.mu.Lock()
			defer s.cloud.mu.Unlock()
			s.cloud.made = append(s.cloud.made, r.ID)
		}
		return err
	})
	return r, err
}

func (s *steppedSession) Get(ctx context.Context, id string) (r cloud.Resource, err error) {
	err = s.process.Step(ctx, "get "+id, func() error {
		r, err = s.Session.Get(ctx, id)
		return err
	})
	return r, err
}

func (s *steppedSession) Update(
	ctx context.Context, id string, properties map[string]string,
) (r cloud.Resource, err error) {
	err = s.process.Step(ctx, "update "+id, func() error {
		r, err = s.Session.Update(ctx, id, properties)
		return err
	})
	return r, err
}

func (s *steppedSession) Delete(ctx context.Context, id string) error {
	return s.process.Step(ctx, "delete "+id, func() error { return s.Session.Delete(ctx, id) })
}

func (s *steppedSession) List(ctx context.Context, f cloud.Filter) (rs []cloud.Resource, err error) {
	err = s.process.Step(ctx, "list", func() error {
		rs, err = s.Session.List(ctx, f)
		return err
	})
	return rs, err
}

// crashed returns the provider of one kind for simulated time.
func (p provider) crashed(t *testing.T, k kind) crashtest.Provider[*crashCloud] {
	t.Helper()
	s := runtime.NewScheme()
	must(t, "AddToScheme()", apis.AddToScheme(s))
	mg := k.new(t, s)
	mg.SetName("one")
	mg.SetNamespace("default")
	must(t, "Unmarshal()", json.Unmarshal([]byte(`{"spec":{
		"forProvider":{"size":1,"zone":"a"},"managementPolicies":["Observe","Create","Update","Delete"]}}`), mg))

	newConfig, add := config.Stock, k.stock
	if p.graft {
		newConfig, add = config.Graft, k.graft
	}
	return crashtest.Provider[*crashCloud]{
		Scheme: s,
		Object: mg,
		Cloud: func() *crashCloud {
			return &crashCloud{Cloud: cloud.New(cloud.Options{ReadyAfter: 5 * time.Second})}
		},
		Start: func(process *crashtest.Process, c *crashCloud) (reconcile.Reconciler, error) {
			pc := newConfig()
			r := pc.Resources[k.name]
			if p.graft && !p.finders {
				r.InitializerFns = nil
			}

			// An interrupted create is repeated when it can't succeed any more.
			const timeout = 2 * time.Minute
			r.OperationTimeouts = upjetconfig.OperationTimeouts{Create: timeout, Update: timeout, Delete: timeout}

			session := &steppedSession{Session: c.Session(""), process: process, cloud: c}
			o := options(
				pc, tjcontroller.NewOperationStore(logging.NewNopLogger()), time.Minute,
				func(context.Context, client.Client, xpresource.Managed) (tfsetup.Setup, error) {
					return tfsetup.Setup{Meta: session, FrameworkProvider: terraform.FrameworkProvider(session)}, nil
				},
			)
			return process.Controller(func(m manager.Manager) error { return add(m, o) })
		},
		Change:    func(o client.Object) { _ = json.Unmarshal([]byte(`{"spec":{"forProvider":{"size":2}}}`), o) },
		Scenarios: crashtest.Scenarios()[:10],
	}
}

// TestCrashes crashes the provider without and with Graft in simulated time.
func TestCrashes(t *testing.T) {
	for _, p := range providers()[1:] {
		for _, k := range kinds() {
			if !k.assigned() && !p.finders {
				continue // No Finder is asked for them.
			}
			t.Run(p.name+"/"+k.object(), func(t *testing.T) {
				o := []crashtest.Option{crashtest.Runs(400)}
				graft := p.crashed(t, k)
				if k.assigned() && !p.finders {
					// Terraform's errors don't say whether a create succeeded, and nothing else does.
					graft.Accept = []crashtest.Verdict{crashtest.Stopped}
					o = append(o, crashtest.Only("/crash"))
				}
				crashtest.Compare(t, providers()[0].crashed(t, k), graft, o...)
			})
		}
	}
}
