package crashtest

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// another is the end of the second managed resource's name.
const another = "-another"

// ownSecret gives the second managed resource a connection secret of its own, because only one
// managed resource can control a Secret.
func ownSecret(o client.Object) {
	content := contentOf(o)
	path := []string{"spec", "writeConnectionSecretToRef", "name"}
	name, found, err := unstructured.NestedString(content, path...)
	if !found || err != nil {
		return
	}
	if err := unstructured.SetNestedField(content, name+another, path...); err == nil {
		_ = decode(content, o)
	}
}
