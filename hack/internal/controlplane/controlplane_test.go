package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestStartFails(t *testing.T) {
	assets := folder(t, apiServer, controllerManager)
	script(t, filepath.Join(assets, etcd), `echo "cannot do anything today" >&2; exit 1`)
	tmp, logs := t.TempDir(), filepath.Join(t.TempDir(), "logs")
	t.Setenv("TMPDIR", tmp)

	_, err := Start(context.Background(), Options{Assets: assets, LogDir: logs})
	want := "etcd said last:\n\tcannot do anything today"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("The error has the last words of what didn't start: want %q, got: %v", want, err)
	}
	if diff := cmp.Diff([]string(nil), list(t, tmp)); diff != "" {
		t.Errorf("Nothing is left: -want, +got:\n%s", diff)
	}
	kept, err := os.ReadFile(filepath.Join(logs, etcd+".log"))
	if err != nil || !strings.Contains(string(kept), "cannot do anything today") {
		t.Errorf("The folder for the output has it, got: %q, %v", kept, err)
	}
}

func TestStartCancelled(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	mkfifo(t, fifo)
	assets := folder(t, apiServer, controllerManager)
	// It never answers, and does not end when it's asked to.
	script(t, filepath.Join(assets, etcd), `
[ "$1" = --help ] && exit
trap '' TERM INT
exec 4>`+quote(fifo)+`
echo started >&4
sleep 1000`)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)

	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := Start(ctx, Options{Assets: assets})
		done <- err
	}()
	waitForEnd := waitForLine(t, fifo)
	cause := errors.New("changed my mind")
	cancel(cause)
	if diff := cmp.Diff(cause, <-done, cmpopts.EquateErrors()); diff != "" {
		t.Errorf("The cause is the error: -want, +got:\n%s", diff)
	}
	waitForEnd()
	if diff := cmp.Diff([]string(nil), list(t, tmp)); diff != "" {
		t.Errorf("Nothing is left: -want, +got:\n%s", diff)
	}
}
