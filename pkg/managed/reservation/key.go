package reservation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
	"github.com/crossplane-graft/graft/pkg/internal/layer"
	"github.com/crossplane-graft/graft/pkg/internal/limit"
	"github.com/crossplane-graft/graft/pkg/managed"
)

// WithKey sets for With the function that returns the key to
// reserve for a managed resource. By default, the key has the kind, provider config and
// external name. Two managed resources of any kinds must have the same key if and only if they
// have the same external resource. Return an empty key while the external name is unknown:
// nothing is reserved then.
//
// Use values that don't change in the life of the external resource, and that are not
// secret: the key is an annotation of the Lease. ProviderConfigKey uses fields of the
// provider config. A managed resource whose key function returns an error is not observed,
// created, updated or deleted, and Synced has the error. A panic counts as an error.
//
// The function is called several times in a reconcile, so it should read from a cache. It
// must be safe for concurrent use. WithKey panics if it is nil. NewReconciler panics
// if it is passed without With.
func WithKey(key func(ctx context.Context, mg resource.Managed) (string, error)) managed.ReconcilerOption {
	is.MustNotBeNil(key, "reservation.WithKey")
	return managed.With(layer.Option{
		Name: "reservation.WithKey",
		Set: func(s *layer.Settings) {
			s.ReservationKey = func(ctx context.Context, mg resource.Managed) (k string, err error) {
				defer func() {
					// After a panic, upstream would not store the outcome of a create.
					if p := recover(); p != nil {
						k, err = "", errors.Errorf("the key function panicked: %v", p)
					}
					err = errors.Wrap(err, "cannot determine which external resource to reserve")
				}()
				return key(ctx, mg)
			}
		},
		Check: func(s layer.Settings) error {
			if !s.Reserves {
				return errors.New("reservation.WithKey was given without reservation.With: pass both, or leave it out")
			}
			return nil
		},
	})
}

// ProviderConfigKey returns a function for WithKey. Its keys have the managed
// resource's kind, fields of its provider config, and the external name. So two provider
// configs share external names if and only if these fields are equal:
//
//	reservation.WithKey(reservation.ProviderConfigKey(mgr.GetClient(), v1beta1.SchemeGroupVersion, "spec.accountID"))
//
// Choose fields that identify the account, project or server that a provider config logs in
// to, and that are not secret. A field that is not set is an error. A user who may set the
// fields can reserve names in any account.
//
// The client's scheme must have the group and version of the provider configs, which are read
// with the client. ProviderConfigKey panics if it does not, without a client or a field, and if a field has an empty
// part.
func ProviderConfigKey(
	c client.Client, configs schema.GroupVersion, fields ...string,
) func(ctx context.Context, mg resource.Managed) (string, error) {
	if is.Nil(c) || len(fields) == 0 {
		panic(errors.New("reservation.ProviderConfigKey was called without a client or a field: pass the manager's client, and the fields of a provider config that identify its account"))
	}
	for _, field := range fields {
		if slices.Contains(strings.Split(field, "."), "") {
			panic(errors.Errorf(
				"reservation.ProviderConfigKey was given the field %q: pass a path such as spec.accountID", field,
			))
		}
	}
	if !c.Scheme().IsVersionRegistered(configs) {
		panic(errors.Errorf(
			"reservation.ProviderConfigKey was given %q, which the client's scheme does not have: pass the group and version of provider configs, and add its API package to the manager's scheme with AddToScheme",
			configs,
		))
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
func providerConfigFields(
	ctx context.Context, c client.Client, configs schema.GroupVersion, mg resource.Managed, fields []string,
) ([]string, error) {
	kind, key := limit.ProviderConfigOf(mg)
	if key.Name == "" {
		return nil, errors.New("the managed resource has no reference to a provider config")
	}
	kind = cmp.Or(kind, limit.KindProviderConfig)
	of, err := c.Scheme().New(configs.WithKind(kind))
	if err != nil {
		return nil, errors.Wrap(
			err,
			"cannot read the provider config: pass the group and version of provider configs, and add them to the manager's scheme",
		)
	}
	pc, ok := of.(client.Object)
	if !ok {
		return nil, errors.Errorf("cannot read the provider config: %T is not a Kubernetes object", of)
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
			return nil, errors.Errorf("%s of %s %q is not a string, number or boolean", field, kind, key.Name)
		}
	}
	return values, nil
}

// defaultKey returns a function whose keys have the kind, the provider config, and the
// external name. It logs once that this does not protect accounts that namespaces share.
func defaultKey(kind schema.GroupKind, log logging.Logger) keyFunc {
	once := sync.Once{}
	return func(_ context.Context, mg resource.Managed) (string, error) {
		if mg.GetNamespace() != "" {
			once.Do(func() {
				log.Info(
					"External names are reserved by the name of the provider config, so managed resources of two namespaces can act on one external resource if their provider configs log in to one account. Pass WithKey",
					"kind", kind.String(),
				)
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
	kind, key := limit.ProviderConfigOf(mg)
	switch {
	case key.Name == "":
		return "-"
	case kind == "", strings.HasPrefix(kind, "Cluster"):
		return kind + "/" + key.Name
	default:
		return kind + "/" + key.Namespace + "/" + key.Name
	}
}

// A keyFunc returns the key of a managed resource's external resource.
type keyFunc func(ctx context.Context, mg resource.Managed) (string, error)
