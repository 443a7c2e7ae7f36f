// Command adopt moves a Crossplane provider to Graft. A provider's author runs
// it in the root of the provider's module:
//
//	go install github.com/crossplane-graft/graft/hack/adopt@latest
//	adopt
//
// It replaces one import, in every Go file of the module,
//
//	github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed
//	github.com/crossplane-graft/graft/pkg/managed
//
// and adds Graft to go.mod: the line for the provider's crossplane-runtime, which
// lines.go lists. A provider whose crossplane-runtime is older than all lines is told
// to raise it first, and nothing is changed.
//
// Nothing else in a Go file changes, unless the block that holds the import was
// formatted by gofmt: then it stays so, which moves the line to its new place. Names
// under which the package is imported, comments, line endings and file modes are kept.
// A second run changes nothing.
//
// Files whose build constraints exclude them, tests and generated files are
// changed too. Vendored packages, nested modules, symbolic links, directories
// that the go command ignores (testdata, and names that begin with a dot or an
// underscore) and node_modules are not. An import whose line says //graft:keep
// is left as it is.
//
// With -trackers it also replaces resource.NewProviderConfigUsageTracker and
// resource.NewLegacyProviderConfigUsageTracker by Graft's, which return the same
// types, and changes the imports. Without, it names the first place where that would
// do something, and counts the others.
//
// -revert undoes both, with the imports. It names each use of what crossplane-runtime
// doesn't have: Graft's own options, imports of Graft's other packages, and
// managed.WithUsageProtection, whose finalizers stay in the cluster. upstream.txt
// lists the names that crossplane-runtime has.
//
// # What is left for a person
//
// Every exported name of upstream's package exists in Graft's, and all but two
// are the same type: Reconciler and ReconcilerOption are Graft's own. Code that
// takes those two from another module, or gives them to one, needs a look.
// adopt names such places:
//
//   - an option that comes from another module and is used in a call of
//     NewReconciler, in a slice of options, in append, in an assignment to an
//     option, or as a result of a function that returns options: wrap it with
//     managed.Upstream;
//   - options or a reconciler that are passed to a function of another module,
//     or stored in one of its structs;
//   - a type assertion on another module's value to one of the two types, which
//     compiles and then fails when it runs.
//
// It looks at syntax only, so that it works without the network and in a tree
// that doesn't build. It follows variables inside one function. A package of
// another module counts only if its source, found in the vendor directory or
// the module cache, imports upstream's package, or if the source isn't there to
// be read. The standard library, crossplane-runtime, controller-runtime and
// other Kubernetes modules never count. What this misses, the compiler finds.
//
// Also left: what go mod tidy will fail on, which are imports of packages that
// crossplane-runtime v2.3 took away, in the module and in its dependencies as far as
// their source is on disk; imports of crossplane-runtime v1; files that don't parse;
// files that can't be written, and symbolic links to Go files outside the module.
//
// # Exit status
//
// 0 when everything was done, or there was nothing to do. 1 when something is
// left for a person, even though the rest was done. 2 when the command could
// not run: wrong flags, no go.mod, a go.mod that doesn't parse. go run turns each
// status but 0 into 1; the report ends with the status unless that is 0.
package main
