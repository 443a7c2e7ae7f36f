package managed

import (
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kinds of provider configs. In labels of metrics all other kinds are one, because users choose
// the kind of a reference.
const (
	kindProviderConfig        = "ProviderConfig"
	kindClusterProviderConfig = "ClusterProviderConfig"
	kindOther                 = "other"
)

// providerConfigOf returns the kind and the name of the provider config that a managed
// resource uses. It is in the managed resource's namespace unless its kind has the prefix
// Cluster. The kind of a legacy managed resource's reference is empty.
func providerConfigOf(mg resource.Managed) (string, client.ObjectKey) {
	switch u := mg.(type) {
	case resource.TypedProviderConfigReferencer:
		if ref := u.GetProviderConfigReference(); ref != nil {
			key := client.ObjectKey{Name: ref.Name}
			if !strings.HasPrefix(ref.Kind, "Cluster") {
				key.Namespace = mg.GetNamespace()
			}
			return ref.Kind, key
		}
	case resource.ProviderConfigReferencer:
		if ref := u.GetProviderConfigReference(); ref != nil {
			return "", client.ObjectKey{Name: ref.Name}
		}
	}
	return "", client.ObjectKey{}
}
