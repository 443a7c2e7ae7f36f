package managed

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/crossplane-graft/graft/pkg/internal/is"
)

// A reservationKey returns the key of the external resource of mg.
type reservationKey func(ctx context.Context, mg resource.Managed) (string, error)

// WithReservationKey sets the key that is reserved for a managed resource, in place of
// its kind, provider config and external name. Two managed resources of any kinds must
// have the same key if and only if they have the same external resource. Return an empty
// key while the external name is unknown: nothing is reserved then.
//
// A key is made of values that don't change in the life of the external resource, and
// that are no secrets: it is an annotation of the Lease. ProviderConfigKey makes it of fields
// of the provider config. A managed resource whose key can't be determined is not observed,
// created, updated or deleted; Synced has the error.
//
// The function is called several times in a reconcile, so it should read from a cache. It
// must be safe for concurrent use. WithReservationKey panics if it is nil.
func WithReservationKey(key func(ctx context.Context, mg resource.Managed) (string, error)) ReservationOption {
	mustNotBeNil(key, "WithReservationKey")
	return func(o *reservationOptions) { o.key = key }
}

// wrapped returns the key function with errors that say what failed.
func (k reservationKey) wrapped() reservationKey {
	if k == nil {
		return nil
	}
	return func(ctx context.Context, mg resource.Managed) (string, error) {
		key, err := k(ctx, mg)
		return key, errors.Wrap(err, "cannot determine which external resource to reserve")
	}
}

// ProviderConfigKey returns a function for WithReservationKey. Its keys are made of the
// managed resource's kind, of fields of its provider config, and of the external name. So two
// provider configs share external names if and only if those fields are equal:
//
//	managed.WithReservationKey(managed.ProviderConfigKey(mgr.GetClient(), v1beta1.SchemeGroupVersion, "spec.accountID"))
//
// Choose fields that together say which account, project or server a provider config logs in
// to, and that are no secrets. A field that is not set is an error. The keys are only as
// trustworthy as the fields: a user who may set them can reserve names in any account.
//
// Provider configs are of the supplied group and version, which the client's scheme must
// have, and are read with the client. ProviderConfigKey panics without a client or a field.
func ProviderConfigKey(c client.Client, configs schema.GroupVersion, fields ...string) func(ctx context.Context, mg resource.Managed) (string, error) {
	if is.Nil(c) || len(fields) == 0 {
		panic(errors.New("managed.ProviderConfigKey was called without a client or a field: pass the manager's client, and which fields of a provider config name its account"))
	}
	return func(ctx context.Context, mg resource.Managed) (string, error) {
		name := meta.GetExternalName(mg)
		if name == "" {
			return "", nil
		}
		kind, err := apiutil.GVKForObject(mg, c.Scheme())
		if err != nil {
			return "", errors.Wrap(err, "cannot determine the kind of the managed resource")
		}
		values, err := providerConfigFields(ctx, c, configs, mg, fields)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s %q %q", kind.GroupKind(), values, name), nil
	}
}

// providerConfigFields returns values of the provider config of mg.
func providerConfigFields(ctx context.Context, c client.Client, configs schema.GroupVersion, mg resource.Managed, fields []string) ([]string, error) {
	kind, key := providerConfigOf(mg)
	if key.Name == "" {
		return nil, errors.New("the managed resource has no reference to a provider config")
	}
	if kind == "" {
		kind = "ProviderConfig"
	}
	of, err := c.Scheme().New(configs.WithKind(kind))
	if err != nil {
		return nil, errors.Wrap(err, "cannot read the provider config: pass the group and version of provider configs, and add them to the manager's scheme")
	}
	pc, ok := of.(client.Object)
	if !ok {
		return nil, errors.Errorf("cannot read the provider config: a %T is no object", of)
	}
	if err := c.Get(ctx, key, pc); err != nil {
		return nil, errors.Wrap(err, "cannot get provider config")
	}
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pc)
	if err != nil {
		return nil, errors.Wrap(err, "cannot convert provider config")
	}

	values := make([]string, 0, len(fields))
	for _, field := range fields {
		v, _, err := unstructured.NestedFieldNoCopy(u, strings.Split(field, ".")...)
		if err != nil {
			return nil, errors.Wrap(err, "cannot read a field of the provider config")
		}
		switch v := v.(type) {
		case string, bool, int64, float64:
			values = append(values, fmt.Sprint(v))
		case nil:
			return nil, errors.Errorf("%s %q has no %s", kind, key.Name, field)
		default:
			return nil, errors.Errorf("%s of %s %q is no string, number or boolean", field, kind, key.Name)
		}
	}
	return values, nil
}

// defaultKey returns a function whose keys are made of the kind, the provider config, and
// the external name. It logs once that this does not protect accounts that namespaces share.
func defaultKey(kind schema.GroupKind, log logging.Logger) reservationKey {
	once := sync.Once{}
	return func(_ context.Context, mg resource.Managed) (string, error) {
		if mg.GetNamespace() != "" {
			once.Do(func() {
				log.Info("External names are reserved by the name of the provider config, so managed resources of two namespaces can act on one external resource if their provider configs log in to one account. Pass WithReservationKey", "kind", kind.String())
			})
		}
		name := meta.GetExternalName(mg)
		if name == "" {
			return "", nil
		}
		return fmt.Sprintf("%s %s %q", kind, providerConfigText(mg), name), nil
	}
}

// providerConfigText names the provider config that a managed resource uses.
func providerConfigText(mg resource.Managed) string {
	kind, key := providerConfigOf(mg)
	switch {
	case key.Name == "":
		return "-"
	case kind == "", strings.HasPrefix(kind, "Cluster"):
		return kind + "/" + key.Name
	default:
		return kind + "/" + key.Namespace + "/" + key.Name
	}
}

// providerConfigOf returns the kind and the name of the provider config that a managed
// resource uses. A kind without the prefix Cluster is in the managed resource's namespace.
// The reference of a legacy managed resource has no kind.
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
