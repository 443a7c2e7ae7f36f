package sample

import (
	"fmt"
	"strconv"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	"github.com/pkg/errors"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
	"github.com/crossplane-graft/graft/pkg/internal/fake/sample/v1alpha1"
)

// Properties of the cloud's resources that this provider manages.
const (
	propertySize   = "size"
	propertyRegion = "region"
)

const connectionEndpoint = xpv2.CredentialsSecretEndpointKey

// An Instance is a managed resource of this provider, of either kind.
type Instance interface {
	resource.Managed

	// GetForProvider returns what is asked for. The caller may change it.
	GetForProvider() *v1alpha1.Parameters

	// GetAtProvider returns what is observed. The caller may change it.
	GetAtProvider() *v1alpha1.Observation
}

var (
	_ Instance = &v1alpha1.Database{}
	_ Instance = &v1alpha1.Bucket{}
)

func instance(mg resource.Managed) (Instance, error) {
	i, ok := mg.(Instance)
	if !ok {
		return nil, fmt.Errorf("a managed resource of type %T is not one of this provider's", mg)
	}
	return i, nil
}

// properties that the spec asks for.
func properties(i Instance) map[string]string {
	p := i.GetForProvider()
	out := map[string]string{propertySize: strconv.FormatInt(p.Size, 10)}
	if p.Region != "" {
		out[propertyRegion] = p.Region
	}
	return out
}

// createRequest tells the cloud what to make, and in whose name.
func (s settings) createRequest(i Instance) cloud.CreateRequest {
	req := cloud.CreateRequest{
		Kind:       kindOf(i),
		Owner:      string(i.GetUID()),
		Properties: properties(i),
	}

	if s.createTokens {
		req.Token = string(i.GetUID())
	}

	if s.deterministicNames {
		req.Name = meta.GetExternalName(i)
	}
	return req
}

func kindOf(i Instance) string {
	if _, ok := i.(*v1alpha1.Database); ok {
		return v1alpha1.DatabaseKind
	}
	return v1alpha1.BucketKind
}

// observed writes what the cloud says into the managed resource. The caller adds
// to the observation what it knows.
func observed(i Instance, r cloud.Resource) managed.ExternalObservation {
	*i.GetAtProvider() = v1alpha1.Observation{ID: r.ID, Endpoint: r.Endpoint, State: string(r.State)}

	switch r.State {
	case cloud.StateCreating:
		i.SetConditions(xpv2.Creating())
	case cloud.StateDeleting:
		i.SetConditions(xpv2.Deleting())
	case cloud.StateAvailable:
		i.SetConditions(xpv2.Available())
	default:
		i.SetConditions(xpv2.Unavailable())
	}

	lateInitialized := false

	if p := i.GetForProvider(); p.Region == "" && r.Properties[propertyRegion] != "" {
		p.Region = r.Properties[propertyRegion]
		lateInitialized = true
	}

	upToDate := true
	for k, want := range properties(i) {
		upToDate = upToDate && r.Properties[k] == want
	}
	return managed.ExternalObservation{
		ResourceExists:          true,
		ResourceUpToDate:        upToDate,
		ResourceLateInitialized: lateInitialized,
		ConnectionDetails:       managed.ConnectionDetails{connectionEndpoint: []byte(r.Endpoint)},
	}
}

func ignoreNotFound(err error) error {
	if errors.Is(err, cloud.ErrNotFound) {
		return nil
	}
	return err
}
