package sample

// Parameters are what a user asks of a resource of the cloud.
type Parameters struct {
	// Size of the resource.
	Size int64 `json:"size"`

	// Region the resource is in. The cloud picks one if it's empty, which is
	// then late initialized.
	Region *string `json:"region,omitempty"`
}

// An Observation is what the cloud says of a resource.
type Observation struct {
	// ID that the cloud gave to the resource.
	ID string `json:"id,omitempty"`

	// Endpoint at which the resource serves.
	Endpoint string `json:"endpoint,omitempty"`

	// State of the resource, in the cloud's words.
	State string `json:"state,omitempty"`
}

// DeepCopyInto copies the parameters.
func (in *Parameters) DeepCopyInto(out *Parameters) {
	*out = *in

	if in.Region != nil {
		region := *in.Region
		out.Region = &region
	}
}
