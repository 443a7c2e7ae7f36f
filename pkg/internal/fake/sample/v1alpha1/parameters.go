package v1alpha1

import (
	"maps"

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
