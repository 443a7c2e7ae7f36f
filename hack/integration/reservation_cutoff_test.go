//go:build integration

package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// A process of the provider is cut off while its create for the holder of a name is
// on its way to the cloud. It runs on, with a cache that gets old, and without an
// answer to anything. Another process takes its place, while two managed resources
// of both kinds wait for the name. They wait until the holder no longer exists.
func TestReservation_HolderIsCutOff(t *testing.T) {
	const first, second = "first", "second"
	s := newServer(t)
	s.createLeaseNamespace(t)
	r := newReferee(cloud.New(cloud.Options{}))

	// Creates take until they are released, even if their process has stopped.
	underWay := make(chan act, 2)
	released := map[string]chan struct{}{first: make(chan struct{}), second: make(chan struct{})}
	release := map[string]func(){
		first:  sync.OnceFunc(func() { close(released[first]) }),
		second: sync.OnceFunc(func() { close(released[second]) }),
	}
	r.hold = func(a act) {
		if a.op != cloud.OpCreate {
			return
		}
		select {
		case <-released[a.process]:
		case underWay <- a:
			<-released[a.process]
		}
	}
	holder := v1alpha1.NewBucket(namespace, "holder")
	meta.SetExternalName(holder, sharedName)
	s.create(t, holder)
	mustCreate := func(process string) {
		t.Helper()
		select {
		case a := <-underWay:
			if a.process != process || a.by != holder.GetUID() {
				t.Fatalf("want a create for the holder by the %s process, got %v", process, a)
			}
		case <-time.After(patience):
			t.Fatal("no process creates anything")
		}
	}
	l := &line{}
	start(t, r.reserved(first), setup{wrap: l.wrap})
	// Before the process is stopped in the end, which waits for its calls.
	t.Cleanup(release[first])
	mustCreate(first)
	rivals := contenders(1)
	s.create(t, rivals...)
	s.until(t, "the others wait for the holder", rivals, func(mg sample.Instance) bool {
		return condition(mg, managed.TypeExternalNameReserved) == "False/"+string(managed.ReasonReservedByOther)
	})
	l.cut.Store(true)

	// The second process continues for the holder: it is the same holder.
	tr := &traffic{}
	start(t, r.reserved(second), setup{wrap: tr.wrap})
	t.Cleanup(release[second])
	mustCreate(second)
	eventually(t, "the others try again and again", func() (bool, string) {
		n := tr.Counted().Sum(func(c call) bool { return c.Reads() && c.Resource == "leases" })
		return n > 10*len(rivals), fmt.Sprint(n)
	})
	if acts := r.acted(func(a act) bool { return a.by != holder.GetUID() }); len(acts) > 0 {
		t.Errorf("want nothing done for others, got %v", acts)
	}

	// The create of the second fails, since that of the first has succeeded.
	release[first]()
	eventually(t, "the first process creates it", func() (bool, string) { return r.owner(t) != "", "there is none" })
	release[second]()
	s.until(t, "the holder is available", []sample.Instance{holder}, isAvailable)
	eventually(t, "the first process tries again and again", func() (bool, string) {
		return l.refused.Load() > 10, fmt.Sprint(l.refused.Load())
	})
	if owner := r.owner(t); owner != holder.GetUID() {
		t.Errorf("want the holder to have it, got %q", owner)
	}

	// One after the other has it.
	r.handOver(t, s, false)
	r.handOver(t, s, false)
	for _, mg := range s.list(t.Context(), t) {
		s.remove(t, mg)
	}
	s.untilGone(t)
	r.check(t)
	if acts := r.acted(func(a act) bool { return a.process == first }); len(acts) != 1 {
		t.Errorf("want one act of the process that was cut off, got %v", acts)
	}
}

// A line connects a process to the API server. When it is cut no answer comes any
// more, also to requests that are on their way, and no event.
type line struct {
	cut     atomic.Bool
	refused atomic.Int64
}

var errCut = errors.New("injected: the line is cut")

func (l *line) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if l.cut.Load() {
			l.refused.Add(1)
			return nil, errCut
		}
		response, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		response.Body = &cutBody{ReadCloser: response.Body, line: l}
		return response, nil
	})
}

type cutBody struct {
	io.ReadCloser

	line *line
}

func (b *cutBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.line.cut.Load() {
		return 0, errCut
	}
	return n, err
}
