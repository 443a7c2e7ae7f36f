//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// Creates were interrupted: some had made their external resource, some had not,
// and some had done no more than to announce themselves. Some of the managed
// resources are being deleted. With upstream all of them wait for an operator.
func TestInterruptedCreate(t *testing.T) {
	const (
		each   = 2 // of each kind, and of each sort
		prefix = "unanswered"
	)

	world := cloud.New(cloud.Options{})
	resolving := flavour{name: "Resolving", build: func(m ctrl.Manager, of resource.ManagedKind, s setup) reconcile.Reconciler {
		find := managed.FindWithConnector(sample.NewLasting[resource.Managed](world))
		if of.Kind == v1alpha1.BucketKind {
			find = managed.FindWithTypedConnector(sample.NewLasting[*v1alpha1.Bucket](world))
		}

		return newGraft(m, of, s, managed.WithCreateResolver(find, managed.WithResolveAfter(2*time.Second)))
	}}
	interrupted := func(mg sample.Instance) {
		meta.SetExternalCreatePending(mg, time.Now().Add(-time.Hour))
		meta.AddFinalizer(mg, managed.FinalizerName)
	}

	s := newServer(t)
	made, none, unanswered := fleet("made", each, interrupted), fleet("none", each, interrupted), fleet(prefix, each)
	leavingMade, leavingNone := fleet("leaving-made", each, interrupted), fleet("leaving-none", each, interrupted)
	staying := append(append(append([]sample.Instance{}, made...), none...), unanswered...)

	for _, f := range [][]sample.Instance{staying, leavingMade, leavingNone} {
		s.create(t, f...)
	}

	session, err := world.NewSession(t.Context(), "")
	must(t, "NewSession()", err)

	for _, mg := range append(made, leavingMade...) {
		_, err := session.Create(t.Context(), cloud.CreateRequest{Kind: kindOf(mg), Owner: string(mg.GetUID())})
		must(t, "cannot create an external resource", err)
	}

	s.remove(t, append(leavingMade, leavingNone...)...)

	tr := &traffic{fault: losesFirst(func(o metav1.ObjectMeta) bool {
		return strings.HasPrefix(o.Name, prefix) && !meta.GetExternalCreatePending(&o).IsZero()
	})}

	start(t, resolving, setup{connectors: syncConnectors(world), wrap: tr.wrap})
	s.until(t, "what stays is available", staying, isAvailable)
	eventually(t, "what leaves is gone", func() (bool, string) {
		n := len(s.list(t.Context(), t))
		return n == len(staying), fmt.Sprintf("%d managed resources, of which %d are to stay", n, len(staying))
	})
	s.owned(t, world, len(staying))
}

// losesFirst loses the answer to the first update of each object that matches.
func losesFirst(match func(o metav1.ObjectMeta) bool) func(c call, body []byte) fault {
	var (
		mu   sync.Mutex
		seen = map[types.UID]bool{}
	)

	return func(c call, body []byte) fault {
		var o struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}

		if c.Method != http.MethodPut || c.Subresource != "" || json.Unmarshal(body, &o) != nil || !match(o.Metadata) {
			return noFault
		}

		mu.Lock()
		defer mu.Unlock()

		if seen[o.Metadata.UID] {
			return noFault
		}

		seen[o.Metadata.UID] = true

		return loseAnswer
	}
}

func kindOf(mg sample.Instance) string {
	if _, ok := mg.(*v1alpha1.Database); ok {
		return v1alpha1.DatabaseKind
	}

	return v1alpha1.BucketKind
}
