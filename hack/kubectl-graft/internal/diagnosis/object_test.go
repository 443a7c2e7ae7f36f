package diagnosis

import "testing"

func TestOwnerOf(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		finalizer string
		want      Owner
	}{
		"Managed":   {"The managed reconciler's finalizer is Crossplane's.", FinalizerManaged, Crossplane},
		"Composite": {"The composite's is Crossplane's.", FinalizerComposite, Crossplane},
		"Claim":     {"The claim's is Crossplane's.", FinalizerClaim, Crossplane},
		"Config":    {"The ProviderConfig's is Crossplane's.", FinalizerConfig, Crossplane},
		"Usage":     {"Graft removes the usage's when nothing uses it.", FinalizerUsage, Crossplane},
		"UpstreamUsage": {
			"Later versions of crossplane-runtime protect usages.",
			"finalizer.providerconfigusage.crossplane.io", Crossplane,
		},
		"Definition": {"The XRD's is Crossplane's.", "defined.apiextensions.crossplane.io", Crossplane},
		"Provider": {
			"Each provider may use a name in Crossplane's domain, and may be uninstalled.",
			"kubernetes.crossplane.io/referred-by-object-u1", Other,
		},
		"Foreground": {"The garbage collector is part of Kubernetes.", "foregroundDeletion", Kubernetes},
		"Kubernetes": {"The domain is Kubernetes' own.", "kubernetes.io/pvc-protection", Kubernetes},
		"Similar":    {"Another domain may end in the same letters.", "notk8s.io/hold", Other},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ownerOf(tc.finalizer); got != tc.want {
				t.Errorf("%s want %s to be of %s, got %s", tc.reason, tc.finalizer, tc.want, got)
			}
		})
	}
}
