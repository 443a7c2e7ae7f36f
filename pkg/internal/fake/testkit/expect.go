package testkit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ExpectEqual fails the test if got differs from want, with the reason why they should be equal.
func ExpectEqual(t testing.TB, reason, what string, want, got any, o ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, o...); diff != "" {
		t.Errorf("\n%s\n%s: -want, +got:\n%s", reason, what, diff)
	}
}
