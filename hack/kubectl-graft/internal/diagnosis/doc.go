// Package diagnosis says how an object of Crossplane's is, from nothing but the object: by
// what Graft reports in conditions and annotations, and without Graft as far as
// crossplane-runtime's own conditions, annotations and finalizers tell.
package diagnosis
