// Command adopt moves a Crossplane provider to Graft. It replaces one import, in every Go
// file of a module,
//
//	github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed
//	github.com/crossplane-graft/graft/pkg/managed
//
// and requires in go.mod the [line] of Graft for the provider's crossplane-runtime. A
// provider whose crossplane-runtime is older than all lines is not changed: adopt says to
// raise it first. Run adopt -h for the flags and exit statuses.
//
// Only the import path changes. A file that gofmt has formatted stays formatted, so the line
// may move. Names of imports, comments, line endings and file modes are kept. A second run
// changes nothing.
//
// adopt also changes tests, generated files, and files that build constraints exclude. It
// does not change vendored packages, nested modules, symbolic links, node_modules, and
// directories that the go command ignores (testdata, and names that begin with a dot or an
// underscore). An import with a //graft:keep comment stays.
//
// With -trackers it also replaces the constructors of usage trackers in package resource by
// Graft's, which return the same types. gofmt formats a file in which it does that. Without
// -trackers it names the first of these places and counts the others. It doesn't find them
// under a dot import.
//
// With -revert it undoes both.
//
// # The compiler
//
// adopt reads syntax only, so that it works without the network and in a tree that doesn't
// build. Every exported name of upstream's package exists in Graft's. All but two are the
// same type: Reconciler and ReconcilerOption are Graft's own. If code of another module
// returns or takes one of these, go build fails there, and docs/adopt.md has the fix.
// After -revert, go build names each use of a name that only Graft has. go mod tidy names
// imports of packages that a later crossplane-runtime lacks.
//
// adopt reports places that name upstream's package without importing it, such as templates
// of generated code: with them the old import comes back, and compiles.
package main
