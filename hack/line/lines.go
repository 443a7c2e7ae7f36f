package main

const (
	graftModule   = "github.com/crossplane-graft/graft"
	runtimeModule = "github.com/crossplane/crossplane-runtime/v2"

	// coreModule has the core types that main imports.
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

	// edits are made in their order. Imports that are not used any more are removed after them.
	edits []edit

	// requires are modules that only tests of dependencies need, and that go mod
	// tidy would take the latest version of. An empty version is of a module that the line
	// does not use.
	requires map[string]string
}

// An edit replaces all matches of a regular expression in a Go file, or in all of them if it names no file.
// It is an error if there is no match.
type edit struct{ file, from, to string }

// testCase matches a case in the table of a test.
func testCase(name string) string { return `(?ms)^\t\t"` + name + `": \{$.*?^\t\t\},\n` }

// lines returns the lines by their release of crossplane-runtime.
func lines() map[string]line {
	main := line{runtime: "v2.4.0", graft: "v0.24", main: true}
	v22 := line{
		runtime: "v2.2.1",
		graft:   "v0.22",
		edits: []edit{
			// The core types.
			{
				from: `(?m)^(\t|import )xpv2 "` + coreModule + `/core/v2"$`,
				to: `${1}xpv1 "` + runtimeModule + `/apis/common/v1"` + "\n" +
					`${1}xpv2 "` + runtimeModule + `/apis/common/v2"`,
			},
			{from: `\bxpv2\.`, to: `xpv1.`},
			{from: `\bxpv1\.(ManagedResourceSpec|TypedProviderConfigUsage)\b`, to: `xpv2.$1`},
			{from: `\bClusterManagedResourceSpec\b`, to: `ResourceSpec`},
			{from: `\bManagedResourceStatus\b`, to: `ResourceStatus`},
			{from: `\bCredentialsSecretEndpointKey\b`, to: `ResourceCredentialsSecretEndpointKey`},

			// Without support for this annotation, a change of it is still a change.
			{file: "pkg/managed/bench_test.go", from: testCase("ReconcileRequested")},
			{from: `\bmeta\.AnnotationKeyReconcileRequestedAt\b`, to: `"crossplane.io/reconcile-requested-at"`},
			{from: `\b\w+\.GetLastHandledReconcileAt\(\)`, to: `""`},

			// It has no annotation for the poll interval.
			{from: `(?ms)^func Test(With_(SpreadsBy|WaitsForTheAnnotated|RequestOf)\w+|PollInterval)\(.*?^}\n`},
			{from: `\bmeta\.GetPollInterval\(o\)`, to: `time.Duration(0), false`},
			{file: "pkg/managed/upstream.go", from: `mustHave\(up, "minPoll\w+", reflect.Int64\).Int\(\)`, to: `0`},

			{file: "pkg/managed/construction_test.go", from: `\bupstream\.WithMinPollInterval\(time\.Second\),`},
			// It requeues at once where v2.4 waits for the poll interval.
			{file: "pkg/managed/resolve/resolver_test.go", from: testCase("AbsentToObserve")},
		},
		requires: map[string]string{coreModule: "", "github.com/cenkalti/backoff/v5": "v5.0.3"},
	}
	return map[string]line{main.runtime: main, v22.runtime: v22}
}
