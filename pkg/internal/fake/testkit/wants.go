package testkit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Wants fails a test that did not get what it wants, with the reason why it wants that.
func Wants(t testing.TB, reason, what string, want, got any, o ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, o...); diff != "" {
		t.Errorf("\n%s\n%s: -want, +got:\n%s", reason, what, diff)
	}
}
