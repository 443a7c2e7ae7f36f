//go:build integration

package tutorial

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crossplane-graft/graft/pkg/hack/internal/controlplane"
)

// All commands of the tutorial are run, in order and in one shell, on a real control
// plane. What the tutorial says that they print is in what they print.
func TestCommands(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Fatalf("the tutorial needs kubectl: %v", err)
	}
	plane, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	graft, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	const mark = "end of block "
	var (
		script strings.Builder
		want   = map[int][]string{}
		n      int
	)
	for _, b := range blocks(t) {
		switch b.language {
		case "sh":
			n++
			fmt.Fprintf(&script, "set -x\n%s\n{ set +x; } 2>/dev/null\necho '%s%d'\n", b.text, mark, n)
		case "text":
			want[n] = strings.Split(strings.TrimSpace(b.text), "\n")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()

	// The provider must not outlive a test that fails.
	t.Cleanup(func() {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", `[ ! -f provider.pid ] || kill -9 "$(cat provider.pid)"`)
		cmd.Dir = filepath.Join(dir, "my-provider")
		_ = cmd.Run()
	})
	cmd := exec.CommandContext(ctx, "bash", "-ec", script.String())
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "GRAFT="+graft, "KUBECONFIG="+plane.Kubeconfig(), "GOWORK=off", "GOFLAGS=")
	began := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s", time.Since(began).Round(time.Second), out)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "my-provider", "provider.log"))
		t.Fatalf("%v\n%s", err, log)
	}
	rest := string(out)
	for i := 1; i <= n; i++ {
		said, after, _ := strings.Cut(rest, fmt.Sprintf("%s%d\n", mark, i))
		rest = after
		for _, line := range want[i] {
			if !strings.Contains(said, line) {
				t.Errorf("block %d: want %q in\n%s", i, line, said)
			}
		}
	}
}
