package limit

import (
	"strings"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KeyOf returns the key of the account of mg if the provider gives it no name: its provider config.
func KeyOf(mg resource.Managed) Key {
	kind, key := ProviderConfigOf(mg)
	return Key{Kind: kind, Namespace: key.Namespace, Name: key.Name}
}

// ProviderConfigOf returns the kind and the name of the provider config that a managed
// resource uses. It is in the managed resource's namespace unless its kind has the prefix
// Cluster. The kind of a legacy managed resource's reference is empty.
func ProviderConfigOf(mg resource.Managed) (string, client.ObjectKey) {
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

// Kinds of provider configs. In labels of metrics all other kinds are one, because users choose
// the kind of a reference.
const (
	KindProviderConfig        = "ProviderConfig"
	KindClusterProviderConfig = "ClusterProviderConfig"
	KindOther                 = "other"
)
