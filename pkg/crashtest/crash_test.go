package crashtest_test

import (
	"testing"

	"github.com/crossplane-graft/graft/pkg/crashtest"
)

// TestCrashes proves the provider of the example.
func TestCrashes(t *testing.T) { crashtest.Run(t, newProvider(), crashtest.Runs(30)) }
