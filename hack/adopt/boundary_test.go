package main

import (
	"fmt"
	"testing"
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
	takes := func(what string) []string {
		return []string{"takes upstream's options from example.org/helper; wrap them with managed.Upstream" + what}
	}
	gives := func(to string) []string {
		return []string{"gives options to " + to + "; if that takes upstream's, build them with upstream's package, imported with a //graft:keep comment"}
	}
	const givesReconciler = "gives the reconciler to example.org/helper; fine if that takes a reconcile.Reconciler, not if it takes upstream's *managed.Reconciler"
	const takesFrom = "takes upstream's options from "
	cases := map[string]struct {
		reason string
		result string
		code   string
		want   []string

		// src is the whole file, in which ours is the path of our package and the only
		// place is in line 8, if it isn't empty.
		src, ours string
	}{
		"Dot": {
			reason: "Under a dot import the names stand alone.",
			src:    "package p\n\nimport (\n\t\"example.org/helper\"\n\t. \"" + upstreamManaged + "\"\n)\n\nvar o = []ReconcilerOption{helper.Opt()}\n",
			ours:   upstreamManaged,
			want:   []string{takesFrom + "example.org/helper; wrap them with Upstream(helper.Opt())"},
		},
		"Raw": {
			reason: "In a file with both imports, upstream's options need Upstream.",
			src:    "package p\n\nimport (\n\t\"" + graftManaged + "\"\n\tup \"" + upstreamManaged + "\"\n)\n\nvar r = managed.NewReconciler(m, k, up.WithTimeout(1), managed.Upstream(up.WithTimeout(2)))\n",
			ours:   graftManaged,
			want:   []string{takesFrom + upstreamManaged + "; wrap them with managed.Upstream(up.WithTimeout(1))"},
		},
		"SpreadIntoNew":     {reason: "Another module's options in a call of NewReconciler.", code: `managed.NewReconciler(mgr, k, helper.Opts(o)...)`, want: takes("(helper.Opts(o)...)")},
		"FieldIntoNew":      {reason: "A field of another module's type.", code: `managed.NewReconciler(mgr, k, o.Reconciler...)`, want: takes("(o.Reconciler...)")},
		"VariableIntoNew":   {reason: "A variable is followed.", code: `x := helper.Opts(); managed.NewReconciler(mgr, k, x...)`, want: takes("(x...)")},
		"RangeIntoNew":      {reason: "So is a range's.", code: `for _, x := range helper.Opts() { managed.NewReconciler(mgr, k, x) }`, want: takes("(x)")},
		"Closure":           {reason: "And what a function literal is given.", code: `func(p helper.Options) { managed.NewReconciler(mgr, k, p.Opts...) }(o)`, want: takes("(p.Opts...)")},
		"Append":            {reason: "Options are often put together with append.", code: `opts = append(opts, helper.Opts()...)`, want: takes("(helper.Opts()...)")},
		"Assigned":          {reason: "A variable of ours gets another module's.", code: `opts = helper.Opts()`, want: takes("")},
		"Converted":         {reason: "A conversion doesn't help.", code: `_ = managed.ReconcilerOption(helper.Opt())`, want: takes("")},
		"Returned":          {reason: "A function of ours returns another module's.", result: "([]managed.ReconcilerOption, error)", code: `return helper.Opts(), nil`, want: takes("")},
		"LongExpression":    {reason: "A long expression isn't repeated.", code: `managed.NewReconciler(mgr, k, helper.OptionsWithAVeryLongName("and a long argument", "and another one")...)`, want: takes("")},
		"Asserted":          {reason: "An assertion compiles and fails later.", code: `_ = o.Any.(managed.ReconcilerOption)`, want: []string{"asserts a type that Graft has its own of on a value from example.org/helper; this compiles, and fails when it runs"}},
		"OptionsGiven":      {reason: "Options go to another module.", code: `helper.Setup(mgr, opts)`, want: gives("example.org/helper")},
		"FieldGiven":        {reason: "To a field.", code: `o.Reconciler = opts`, want: gives("example.org/helper")},
		"UnseenGiven":       {reason: "Without the source it is a guess.", code: `unseen.Setup(mgr, opts)`, want: gives("example.org/unseen (a guess: its source isn't here)")},
		"NestedGiven":       {reason: "A nested module isn't changed, and go.mod doesn't say where it is.", code: `part.Setup(mgr, opts)`, want: gives("example.org/provider/nested/part (a guess: its source isn't here)")},
		"ReconcilerGiven":   {reason: "A reconciler goes to another module.", code: `helper.Start(r)`, want: []string{givesReconciler}},
		"Upstream":          {reason: "This is how it is to be done.", code: `managed.NewReconciler(mgr, k, managed.Upstream(helper.Opts()...))`},
		"Connector":         {reason: "A connector is an interface, in an option of ours.", code: `managed.NewReconciler(mgr, k, managed.WithExternalConnecter(helper.NewConnector(o.Client, o.Opts...)))`},
		"Initializers":      {reason: "Initializers are an alias.", code: `var i managed.InitializerChain; i = append(i, helper.Init()); _ = managed.WithInitializers(i)`},
		"RateLimiter":       {reason: "crossplane-runtime's own packages take an interface.", code: `ctrl.NewControllerManagedBy(mgr).Complete(ratelimiter.NewReconciler("n", r, o.Limiter))`},
		"OwnPackage":        {reason: "The module's own packages are changed with the rest.", code: `own.Setup(mgr, opts); opts = append(opts, own.Opts()...)`},
		"DeafPackage":       {reason: "A package that doesn't import upstream's can't have its types.", code: `deaf.Print(opts)`},
		"OtherOptions":      {reason: "Some With functions make other options.", code: `helper.Log(managed.NewGRPCChangeLogger(c, managed.WithProviderVersion("v")))`},
		"ShadowingVariable": {reason: "A variable may have a package's name.", code: `helper := own.New(); opts = append(opts, helper.Opts()...)`},
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
			src, ours, line := fmt.Sprintf(file, tc.result, tc.code), upstreamManaged, 18
			if tc.src != "" {
				src, ours, line = tc.src, tc.ours, 8
			}
			g, err := parseGo("a.go", []byte(src))
			must(t, err)
			var got []string
			for _, c := range crossings(g, ours, newSources(m, m.file("cache"))) {
				wants(t, tc.reason, "line", line, c.line)
				got = append(got, c.text)
			}
			wants(t, tc.reason, "", tc.want, got)
		})
	}
}
