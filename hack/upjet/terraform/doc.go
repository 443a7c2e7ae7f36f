// Package terraform is a Terraform provider of the simulated cloud, in process: two
// resources of the plugin SDK and two of the plugin framework. Of each two, one has an
// id that the cloud assigns, and one has the name that it is asked for.
//
// A create returns when the resource is available. If it fails after the cloud has
// answered, the id comes with the error, as it does with real providers.
package terraform

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/crossplane-graft/graft/pkg/internal/fake/cloud"
)

// The resources.
const (
	SDKServer       = "cloud_sdk_server"
	SDKBucket       = "cloud_sdk_bucket"
	FrameworkServer = "cloud_framework_server"
	FrameworkBucket = "cloud_framework_bucket"
)

// A Session calls the cloud: in process, or over HTTP.
type Session = cloud.Client

// pollEvery is how often a resource is read that is not available yet, or not gone.
const pollEvery = 20 * time.Millisecond

const (
	tagPrefix    = "tag:"
	propertySize = "size"
	propertyZone = "zone"
)

// arguments of a resource. A change of the zone requires a replacement.
type arguments struct {
	size, zone string
	tags       map[string]string
}

// properties of a resource in the cloud.
func (a arguments) properties() map[string]string {
	p := map[string]string{propertySize: a.size, propertyZone: a.zone}
	for k, v := range a.tags {
		p[tagPrefix+k] = v
	}
	return p
}

// Tags of a resource in the cloud.
func Tags(properties map[string]string) map[string]string {
	tags := map[string]string{}
	for k, v := range maps.All(properties) {
		if key, ok := strings.CutPrefix(k, tagPrefix); ok {
			tags[key] = v
		}
	}
	return tags
}

// create a resource, and wait until it is available. It returns the id as soon as it
// is known, with the error if there is one.
func create(ctx context.Context, s Session, kind, name string, a arguments) (cloud.Resource, error) {
	r, err := s.Create(ctx, cloud.CreateRequest{Kind: kind, Name: name, Properties: a.properties()})
	if err != nil {
		return cloud.Resource{}, err
	}
	got := r
	for got.State != cloud.StateAvailable {
		if err := (cloud.RealClock{}).Sleep(ctx, pollEvery); err != nil {
			return r, err
		}
		if got, err = s.Get(ctx, r.ID); err != nil && !errors.Is(err, cloud.ErrNotFound) {
			return r, err
		}
	}
	return got, nil
}

// remove a resource, and wait until it is gone.
func remove(ctx context.Context, s Session, id string) error {
	err := s.Delete(ctx, id)

	for err == nil {
		if _, err = s.Get(ctx, id); err == nil {
			err = (cloud.RealClock{}).Sleep(ctx, pollEvery)
		}
	}

	if errors.Is(err, cloud.ErrNotFound) {
		return nil
	}
	return err
}
