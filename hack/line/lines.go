package main

const (
	graftModule   = "github.com/crossplane-graft/graft"
	runtimeModule = "github.com/crossplane/crossplane-runtime/v2"

	// corePath is the package of the core types that main imports.
	corePath   = coreModule + "/core/v2"
	coreModule = "github.com/crossplane/crossplane/apis/v2"
)

// A line is Graft for one minor release of crossplane-runtime: what differs from
// main.
type line struct {
	// runtime is the release of crossplane-runtime that the line requires. Graft's
	// minor number is that release's.
	runtime, graft string

	// version is what modules of the tree require of each other, if it isn't what
	// main's do.
	version string

	// main marks the line of main itself. The fields below are empty then.
	main bool

	// core has all core types that main takes from corePath, except others: those that
	// another package has, or that are called otherwise.
	core   importSpec
	others map[string]coreName

	// lacks are the names that main uses and this release doesn't have. A Go expression
	// stands for each, or for a call of the method. Without one, only tests may use the
	// name: they are left out.
	lacks map[name]string

	// differs are the test cases with another outcome on this release, each with that
	// outcome. They are left out.
	differs map[testCase]string

	// requires are modules that only tests of dependencies need, and that go mod
	// tidy would take the latest version of.
	requires map[string]string
}

// A coreName is a core type in a line.
type coreName struct {
	in   importSpec
	name string
}

// An importSpec is a package and the name to import it under.
type importSpec struct{ name, path string }

// A name is an exported name of a package. The path is empty for a method.
type name struct{ path, name string }

// A testCase is a case in the table of a test function.
type testCase struct{ test, name string }

// lines returns the lines by their release of crossplane-runtime.
func lines() map[string]line {
	v1 := importSpec{name: "xpv1", path: runtimeModule + "/apis/common/v1"}
	v2 := importSpec{name: "xpv2", path: runtimeModule + "/apis/common/v2"}
	main := line{runtime: "v2.4.0", graft: "v0.24", main: true}

	const requestedAt = `"crossplane.io/reconcile-requested-at"`
	v22 := line{
		runtime: "v2.2.1",
		graft:   "v0.22",
		core:    v1,
		others: map[string]coreName{
			"ManagedResourceSpec":          {in: v2, name: "ManagedResourceSpec"},
			"TypedProviderConfigUsage":     {in: v2, name: "TypedProviderConfigUsage"},
			"ClusterManagedResourceSpec":   {in: v1, name: "ResourceSpec"},
			"ManagedResourceStatus":        {in: v1, name: "ResourceStatus"},
			"CredentialsSecretEndpointKey": {in: v1, name: "ResourceCredentialsSecretEndpointKey"},
		},
		lacks: map[name]string{
			// Without support for this annotation, a change of it is still a change.
			{runtimeModule + "/pkg/meta", "AnnotationKeyReconcileRequestedAt"}: requestedAt,

			{"", "SetLastHandledReconcileAt"}: "",
			{"", "GetLastHandledReconcileAt"}: `""`,

			{runtimeModule + "/pkg/reconciler/managed", "WithMinPollInterval"}: "",
			{graftModule + "/pkg/managed", "WithMinPollInterval"}:              "",
		},
		differs: map[testCase]string{
			{"TestCreateResolver", "AbsentToObserve"}: "requeues at once where v2.4 waits for the poll interval",
		},
		requires: map[string]string{"github.com/cenkalti/backoff/v5": "v5.0.3"},
	}
	return map[string]line{main.runtime: main, v22.runtime: v22}
}
