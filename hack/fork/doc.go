// Package fork holds the test that what the documentation says to a fork of
// Crossplane can be done: it does it to the release that the documentation names,
// and compiles and tests the result.
//
// The test is behind the build tag fork, since it builds much of Crossplane, which
// takes minutes. `make fork` runs it. It needs git, and a Go module proxy.
package fork
