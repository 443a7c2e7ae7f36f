package controlplane

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/utils/clock"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("changed my mind")

	first, err := acquire(ctx, path, clock.RealClock{}, func() { t.Error("The first must not wait for the lock.") })
	if err != nil {
		t.Fatal(err)
	}

	waiting := 0
	_, err = acquire(ctx, path, clock.RealClock{}, func() {
		waiting++
		cancel(cause)
	})
	if diff := cmp.Diff(cause, err, cmpopts.EquateErrors()); diff != "" {
		t.Errorf("Waiting ends with the context: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(1, waiting); diff != "" {
		t.Errorf("That it waits is told once: -want, +got:\n%s", diff)
	}

	second, err := acquire(context.Background(), path, clock.RealClock{}, first.release)
	if err != nil {
		t.Fatalf("The next one gets it when it's released: %v", err)
	}
	second.release()
}
