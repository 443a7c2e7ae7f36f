package seam

import "k8s.io/apimachinery/pkg/util/resourceversion"

// OlderThan reports whether resource version a is known to be older than b.
// Versions that can't be compared are not known to be anything.
func OlderThan(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}
