// Package upstream runs crossplane-runtime's own tests of its managed resource reconciler with
// Graft's NewReconciler:
//
//	go test -tags upstream ./upstream
//
// Upstream's test files are copied from the module cache, and import Graft's package managed as
// a provider does that changed the import. Everything that they call is then Graft's. The tests
// are not part of this repository.
package upstream
