package v1alpha1

import (
	"maps"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	xpv2 "github.com/crossplane/crossplane/apis/v2/core/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Parameters are what a user asks of a resource of the cloud.
type Parameters struct {
	// Size of the resource.
	Size int64 `json:"size"`

	// Region the resource is in. The cloud picks one if it's empty, which is
	// then late initialized.
	Region string `json:"region,omitempty"`
}

// An Observation is what the cloud says of a resource.
type Observation struct {
	// ID that the cloud gave to the resource.
	ID string `json:"id,omitempty"`

	// Endpoint at which the resource serves.
	Endpoint string `json:"endpoint,omitempty"`

	// State of the resource, in the cloud's words.
	State string `json:"state,omitempty"`

	// Facts, Created and Manifest are set by tests only. The API server stores
	// the last two in another form than Go has them.
	Facts    map[string]string    `json:"facts,omitempty"`
	Created  *metav1.Time         `json:"created,omitempty"`
	Manifest runtime.RawExtension `json:"manifest,omitempty,omitzero"`
}

// DeepCopyInto copies the observation.
func (in *Observation) DeepCopyInto(out *Observation) {
	*out = *in
	out.Facts = maps.Clone(in.Facts)
	out.Created = in.Created.DeepCopy()
	in.Manifest.DeepCopyInto(&out.Manifest)
}

// A Status is the observed state of a managed resource, which embeds it to have its
// methods.
type Status struct {
	xpv2.ManagedResourceStatus `json:",inline"`

	AtProvider Observation `json:"atProvider,omitempty"`
}

// GetAtProvider returns what is observed. The caller may change it.
func (s *Status) GetAtProvider() *Observation { return &s.AtProvider }

// DeepCopyInto copies the status.
func (s *Status) DeepCopyInto(out *Status) {
	s.ManagedResourceStatus.DeepCopyInto(&out.ManagedResourceStatus)
	s.AtProvider.DeepCopyInto(&out.AtProvider)
}

// copied returns copies of a list's items.
func copied[T any, P interface {
	*T
	DeepCopyInto(out *T)
}](items []T) []T {
	if items == nil {
		return nil
	}
	out := make([]T, len(items))
	for i := range items {
		P(&items[i]).DeepCopyInto(&out[i])
	}
	return out
}

// managed returns a list's items.
func managed[T any, P interface {
	*T
	resource.Managed
}](items []T) []resource.Managed {
	out := make([]resource.Managed, len(items))
	for i := range items {
		out[i] = P(&items[i])
	}
	return out
}
