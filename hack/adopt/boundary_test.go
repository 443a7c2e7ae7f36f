package main

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCrossings checks one statement at a time, in a function that has options,
// a reconciler, and a value of another module's type.
func TestCrossings(t *testing.T) {
	const file = `package p

import (
	"slices"

	"github.com/crossplane/crossplane-runtime/v2/pkg/ratelimiter"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	ctrl "sigs.k8s.io/controller-runtime"

	"example.org/deaf"
	"example.org/helper"
	"example.org/provider/internal/own"
	"example.org/provider/nested/part"
	"example.org/unseen"
)

func f(mgr ctrl.Manager, o helper.Options, opts []managed.ReconcilerOption, r *managed.Reconciler) %s {
	%s
}
`
	const line = 18
	takes := func(what string) []string {
		return []string{"takes upstream's options from example.org/helper; wrap them with managed.Upstream" + what}
	}
	gives := func(to string) []string {
		return []string{"gives options to " + to + "; if that takes upstream's, build them with upstream's package, imported with a //graft:keep comment"}
	}
	const givesReconciler = "gives the reconciler to example.org/helper; fine if that takes a reconcile.Reconciler, not if it takes upstream's *managed.Reconciler"
	cases := map[string]struct {
		reason string
		result string
		code   string
		want   []string
	}{
		"SpreadIntoNew":     {"Another module's options in a call of NewReconciler.", "", `managed.NewReconciler(mgr, k, helper.Opts(o)...)`, takes("(helper.Opts(o)...)")},
		"FieldIntoNew":      {"A field of another module's type.", "", `managed.NewReconciler(mgr, k, o.Reconciler...)`, takes("(o.Reconciler...)")},
		"VariableIntoNew":   {"A variable is followed.", "", `x := helper.Opts(); managed.NewReconciler(mgr, k, x...)`, takes("(x...)")},
		"RangeIntoNew":      {"So is a range's.", "", `for _, x := range helper.Opts() { managed.NewReconciler(mgr, k, x) }`, takes("(x)")},
		"Closure":           {"And what a function literal is given.", "", `func(p helper.Options) { managed.NewReconciler(mgr, k, p.Opts...) }(o)`, takes("(p.Opts...)")},
		"Append":            {"Options are often put together with append.", "", `opts = append(opts, helper.Opts()...)`, takes("(helper.Opts()...)")},
		"Assigned":          {"A variable of ours gets another module's.", "", `opts = helper.Opts()`, takes("")},
		"Converted":         {"A conversion doesn't help.", "", `_ = managed.ReconcilerOption(helper.Opt())`, takes("")},
		"Returned":          {"A function of ours returns another module's.", "([]managed.ReconcilerOption, error)", `return helper.Opts(), nil`, takes("")},
		"LongExpression":    {"A long expression isn't repeated.", "", `managed.NewReconciler(mgr, k, helper.OptionsWithAVeryLongName("and a long argument", "and another one")...)`, takes("")},
		"Asserted":          {"An assertion compiles and fails later.", "", `_ = o.Any.(managed.ReconcilerOption)`, []string{"asserts a type that Graft has its own of on a value from example.org/helper; this compiles, and fails when it runs"}},
		"OptionsGiven":      {"Options go to another module.", "", `helper.Setup(mgr, opts)`, gives("example.org/helper")},
		"FieldGiven":        {"To a field.", "", `o.Reconciler = opts`, gives("example.org/helper")},
		"UnseenGiven":       {"Without the source it is a guess.", "", `unseen.Setup(mgr, opts)`, gives("example.org/unseen (a guess: its source isn't here)")},
		"NestedGiven":       {"A nested module isn't changed, and go.mod doesn't say where it is.", "", `part.Setup(mgr, opts)`, gives("example.org/provider/nested/part (a guess: its source isn't here)")},
		"ReconcilerGiven":   {"A reconciler goes to another module.", "", `helper.Start(r)`, []string{givesReconciler}},
		"Upstream":          {"This is how it is to be done.", "", `managed.NewReconciler(mgr, k, managed.Upstream(helper.Opts()...))`, nil},
		"Connector":         {"A connector is an interface, in an option of ours.", "", `managed.NewReconciler(mgr, k, managed.WithExternalConnecter(helper.NewConnector(o.Client, o.Opts...)))`, nil},
		"Initializers":      {"Initializers are an alias.", "", `var i managed.InitializerChain; i = append(i, helper.Init()); _ = managed.WithInitializers(i)`, nil},
		"RateLimiter":       {"crossplane-runtime's own packages take an interface.", "", `ctrl.NewControllerManagedBy(mgr).Complete(ratelimiter.NewReconciler("n", r, o.Limiter))`, nil},
		"OwnPackage":        {"The module's own packages are changed with the rest.", "", `own.Setup(mgr, opts); opts = append(opts, own.Opts()...)`, nil},
		"DeafPackage":       {"A package that doesn't import upstream's can't have its types.", "", `deaf.Print(opts)`, nil},
		"OtherOptions":      {"Some With functions make other options.", "", `helper.Log(managed.NewGRPCChangeLogger(c, managed.WithProviderVersion("v")))`, nil},
		"ShadowingVariable": {"A variable may have a package's name.", "", `helper := own.New(); opts = append(opts, helper.Opts()...)`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			const knows = "package x\n\nimport _ \"" + upstreamManaged + "\"\n"
			dir := writeTree(t, map[string]string{
				"go.mod":                                  "module example.org/provider\n\ngo 1.25.11\n\nrequire (\n\texample.org/deaf v1.0.0\n\texample.org/helper v1.0.0\n\texample.org/unseen v1.0.0\n)\n\nreplace example.org/helper => ./_helper\n",
				"_helper/x.go":                            knows,
				"nested/go.mod":                           "module example.org/provider/nested\n",
				"nested/part/x.go":                        knows,
				"cache/example.org/deaf@v1.0.0/x":         "",
				"cache/example.org/deaf@v1.0.0/x.go":      "package deaf\n",
				"cache/example.org/deaf@v1.0.0/x_test.go": knows,
			})
			m, err := openModule(dir)
			must(t, err)
			g, err := parseGo("a.go", fmt.Appendf(nil, file, tc.result, tc.code))
			must(t, err)
			var got []string
			for _, c := range crossings(g, upstreamManaged, newSources(m, m.file("cache"))) {
				if c.line != line {
					t.Errorf("\n%s\nwant line %d, got %d", tc.reason, line, c.line)
				}
				got = append(got, c.text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestCrossingsNames checks the names by which the packages go.
func TestCrossingsNames(t *testing.T) {
	cases := map[string]struct {
		reason string
		src    string
		ours   string
		want   []crossing
	}{
		"Dot": {
			reason: "Under a dot import the names stand alone.",
			src:    "package p\n\nimport (\n\t\"example.org/helper\"\n\t. \"" + upstreamManaged + "\"\n)\n\nvar o = []ReconcilerOption{helper.Opt()}\n",
			ours:   upstreamManaged,
			want:   []crossing{{8, "takes upstream's options from example.org/helper; wrap them with Upstream(helper.Opt())"}},
		},
		"Raw": {
			reason: "In a file with both imports, upstream's options need Upstream.",
			src:    "package p\n\nimport (\n\t\"" + graftManaged + "\"\n\tup \"" + upstreamManaged + "\"\n)\n\nvar r = managed.NewReconciler(m, k, up.WithTimeout(1), managed.Upstream(up.WithTimeout(2)))\n",
			ours:   graftManaged,
			want:   []crossing{{8, "takes upstream's options from " + upstreamManaged + "; wrap them with managed.Upstream(up.WithTimeout(1))"}},
		},
	}
	m, err := openModule(writeTree(t, map[string]string{"go.mod": goMod}))
	must(t, err)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g, err := parseGo("a.go", []byte(tc.src))
			must(t, err)
			got := crossings(g, tc.ours, newSources(m, ""))
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(crossing{})); diff != "" {
				t.Errorf("\n%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
