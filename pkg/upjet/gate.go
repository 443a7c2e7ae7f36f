package upjet

import (
	"context"
	"sync"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/types"
)

// gates let one client at a time use the Terraform state of a managed resource. They
// keep nothing of managed resources whose state is not in use.
type gates struct {
	mu sync.Mutex

	// taken has a channel for each state in use. It is closed when it is not.
	taken map[types.UID]chan struct{}
}

func newGates() *gates { return &gates{taken: map[types.UID]chan struct{}{}} }

// try to enter. It reports false if the state is in use.
func (g *gates) try(uid types.UID) (leave func(), ok bool) {
	leave, wait := g.take(uid)
	return leave, wait == nil
}

// enter as soon as the state is not in use.
func (g *gates) enter(ctx context.Context, uid types.UID) (leave func(), err error) {
	for {
		leave, wait := g.take(uid)
		if wait == nil {
			return leave, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			// Nothing was requested yet. The error must not look like a lost answer.
			return nil, errors.New("another client of the managed resource did not end in time")
		}
	}
}

// take returns a function that releases the state, or, if the state is in use, a channel that
// is closed when it is released.
func (g *gates) take(uid types.UID) (leave func(), wait <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait, ok := g.taken[uid]; ok {
		return nil, wait
	}
	done := make(chan struct{})
	g.taken[uid] = done
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.taken, uid)
		close(done)
	}, nil
}
