package quickstart

import (
	"testing"

	"github.com/crossplane-graft/graft/pkg/crashtest"
)

// TestCrashes lets each fault strike each request of both providers.
func TestCrashes(t *testing.T) {
	crashtest.Compare(t, provider(withUpstream), provider(withGraft), crashtest.Runs(300))
}
