// Package integration holds the tests that need a real kube-apiserver: the
// failures that Graft ends, upstream beside Graft from the same provider code,
// with a manager, a cache and two workers a kind; what Graft relies on of an API
// server and no fake can prove; and a provider among other writers and failing
// requests.
//
// The tests are behind the build tag integration. `make integration` runs them.
package integration
