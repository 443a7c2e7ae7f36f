package main

import "testing"

// On the way back adopt names all that crossplane-runtime doesn't have, and the tree
// is as it was otherwise.
func TestRevertReportsWhatUpstreamLacks(t *testing.T) {
	const header = "package p\n\n" + ourOne + "\n\n"
	cases := map[string]adoption{
		"Upstream": {
			reason: "It only marks options as upstream's.",
			src:    header + "var o = managed.Upstream(x...)\n",
			says:   []string{"a.go:5  managed.Upstream isn't in crossplane-runtime; pass its arguments as they are"},
		},
		"UsageProtection": {
			reason: "No compiler knows of the finalizers in the cluster.",
			src:    header + "var o = managed.WithUsageProtection()\n",
			says:   []string{"a.go:5  usages keep the finalizer that managed.WithUsageProtection gave them; run the provider with managed.WithReleaseAll before you go back"},
		},
		"Options": {
			reason: "Each of Graft's own options is named, also where one is used as a value.",
			src:    header + "var a, b = managed.WithAsync(nil), managed.WithDeletionConfirmation\n\nvar c = managed.WithTimeout(1)\n\nvar d managed.Finder\n",
			says: []string{
				"a.go:5  managed.WithAsync is Graft's own",
				"a.go:5  managed.WithDeletionConfirmation is Graft's own",
				"a.go:9  managed.Finder is Graft's own",
			},
		},
		"UpstreamNames": {
			reason: "What upstream has goes back without a word: types, constants, functions, also of later releases.",
			src:    header + "var _ managed.ExternalClient\n\nvar a, b, c = managed.FinalizerName, managed.NewReconciler, managed.WithMinPollInterval\n",
		},
		"Alias": {
			reason: "The file's own name of the package counts.",
			src:    "package p\n\nimport g " + graft + "\n\nvar o = g.WithAsync(nil)\n",
			says:   []string{"a.go:5  g.WithAsync is Graft's own"},
		},
		"Dot": {
			reason: "With a dot import those names count that neither upstream nor the package has.",
			src:    "package p\n\nimport . " + graft + "\n\nvar a, b, c, d = WithAsync(nil), WithTimeout(1), WithLocal(), WithOther()\n\nfunc WithLocal() {}\n",
			files:  map[string]string{"b.go": "package p\n\nfunc WithOther() {}\n"},
			says:   []string{"a.go:5  WithAsync is Graft's own"},
		},
		"OtherPackages": {
			reason: "Graft's other packages have no counterpart.",
			src:    "package p\n\nimport (\n\t\"" + graftModule + "/pkg/asyncstate\"\n\t" + graft + "\n)\n\nvar a, b = asyncstate.New(), managed.ControllerName\n",
			says:   []string{"a.go:4  imports Graft's pkg/asyncstate, which crossplane-runtime has nothing like"},
		},
	}
	adoptions(t, cases, "a.go:", "-revert")
}
