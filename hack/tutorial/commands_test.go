//go:build integration

package tutorial

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crossplane-graft/graft/pkg/hack/internal/controlplane"
)

// All commands of the tutorial are run, in order and in one shell, on a real control
// plane. Commands whose output the tutorial shows print exactly that.
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
		want   = map[int]string{}
		n      int
	)
	for _, b := range blocks(t) {
		switch b.language {
		case "sh":
			n++
			fmt.Fprintf(&script, "set -x\n%s\n{ set +x; } 2>/dev/null\necho '%s%d'\n", b.text, mark, n)
		case "text":
			want[n] = b.text
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()

	// The provider and the cloud must not outlive a test that fails.
	t.Cleanup(func() {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c",
			`for p in provider cloud; do [ ! -f $p.pid ] || kill -9 "$(cat $p.pid)"; done`)
		cmd.Dir = filepath.Join(dir, "my-provider")
		_ = cmd.Run()
	})
	cmd := exec.CommandContext(ctx, "bash", "-ec", script.String())
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "GRAFT="+graft, "KUBECONFIG="+plane.Kubeconfig(), "GOWORK=off", "GOFLAGS=")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err = cmd.Run()
	t.Logf("%s\n%s", time.Since(began).Round(time.Second), stderr.String())
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "my-provider", "provider.log"))
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), log)
	}
	rest := stdout.String()
	for i := 1; i <= n; i++ {
		printed, after, _ := strings.Cut(rest, fmt.Sprintf("%s%d\n", mark, i))
		rest = after
		if text, ok := want[i]; ok {
			if diff := cmp.Diff(lines(text), lines(printed)); diff != "" {
				t.Errorf("block %d: -tutorial, +printed:\n%s", i, diff)
			}
		}
	}
}

// lines returns the lines of a text. Columns of kubectl end with spaces.
func lines(text string) []string {
	var out []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		out = append(out, strings.TrimRight(line, " \n"))
	}
	return out
}
