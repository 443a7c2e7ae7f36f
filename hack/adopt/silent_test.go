package main

import "testing"

func TestAssertions(t *testing.T) {
	const header = "package p\n\nimport (\n\t" + up + "\n\n\t\"example.org/helper\"\n)\n\n"
	cases := map[string]adoption{
		"Option": {
			reason: "The report should name an assertion, because it compiles and fails at run time.",
			src:    header + "var o = helper.Any().(managed.ReconcilerOption)\n",
			says:   []string{"a.go:9  asserts a type that Graft has its own of"},
		},
		"Switch": {
			reason: "The report should name each case of a type switch that has one of the types, or a slice of it.",
			src:    header + "func f() {\n\tswitch helper.Any().(type) {\n\tcase *managed.Reconciler:\n\tcase string, []managed.ReconcilerOption:\n\t}\n}\n",
			says:   []string{"a.go:11  asserts", "a.go:12  asserts"},
		},
		"Dot": {
			reason: "The names should count without a qualifier under a dot import.",
			src:    "package p\n\nimport . " + up + "\n\nvar r = any(nil).(*Reconciler)\n",
			says:   []string{"a.go:5  asserts"},
		},
		"Compiled": {
			reason: "The report should not repeat errors of the compiler.",
			src:    header + "var r = managed.NewReconciler(m, k, append(helper.Opts(), managed.ReconcilerOption(helper.Opt()))...)\n",
		},
		"OtherTypes": {
			reason: "The report should not name types that are the same in both packages, or another package's.",
			src:    header + "var a, b = helper.Any().(managed.ExternalClient), helper.Any().(*helper.Reconciler)\n",
		},
	}
	adoptions(t, cases, "asserts a type", "-version", "v0.24.0")
}

func TestRevertRemains(t *testing.T) {
	const header = "package p\n\n" + ourOne + "\n\n"
	cases := map[string]adoption{
		"UsageProtection": {
			reason: "The report should name finalizers that stay in the cluster, because no compiler knows them.",
			src:    header + "var o = managed.WithUsageProtection()\n",
			says: []string{
				"a.go:5  usages keep the finalizer that managed.WithUsageProtection gave them; run the provider with managed.NewUnconditionalUsageReleaser before you go back",
			},
		},
		"Alias": {
			reason: "The report should use the file's own name of the package.",
			src:    "package p\n\nimport g " + graft + "\n\nvar o = g.WithUsageProtection()\n",
			says:   []string{"a.go:5  usages keep the finalizer that g.WithUsageProtection gave them"},
		},
		"Dot": {
			reason: "The report should find the name under a dot import, too.",
			src:    "package p\n\nimport . " + graft + "\n\nvar o = WithUsageProtection()\n",
			says:   []string{"a.go:5  usages keep the finalizer that WithUsageProtection gave them"},
		},
		"Compiled": {
			reason: "The report should not repeat errors of the compiler.",
			src:    header + "var o = managed.Upstream(managed.WithAsync(nil))\n",
		},
		"OtherPackages": {
			reason: "The report should name Graft's other packages, because the file builds with them.",
			src: "package p\n\nimport (\n\t\"" + graftModule + "/pkg/asyncstate\"\n\t" + graft +
				"\n)\n\nvar a, b = asyncstate.New(), managed.ControllerName\n",
			says: []string{"a.go:4  imports Graft's pkg/asyncstate, which crossplane-runtime has nothing like"},
		},
	}
	adoptions(t, cases, "a.go:", "-revert")
}
