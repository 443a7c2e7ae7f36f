// Package v1alpha1 has the kinds of the sample provider. It imports none of Graft's
// packages, so that their own tests can use it.
package v1alpha1
