// Package integration holds the tests that need a real kube-apiserver: what Graft
// relies on of an API server, a namespace controller and a garbage collector, and no
// fake can prove; a provider with a manager, a cache and two workers a kind among
// other writers, failing requests and SIGKILL; and deletions in Crossplane's shape.
//
// The tests are behind the build tag integration. `make integration` runs them.
package integration
