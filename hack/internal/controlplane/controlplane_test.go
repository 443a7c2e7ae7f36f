package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
