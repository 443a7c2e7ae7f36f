//go:build torture

package torture

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"github.com/crossplane-graft/graft/pkg/hack/internal/intest"
)

// TestTorture makes all runs, or those that the arguments after -args -- select, and prints the table.
func TestTorture(t *testing.T) {
	// Runs are short, and each leaves a whole API server behind.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	if command(t, flag.Args(), os.Stdout, os.Stderr) != intest.ExitOK {
		t.Fail()
	}
}
