package resolve_test

import (
	"context"
	"fmt"

	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource/fake"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crossplane-graft/graft/pkg/asyncstate"
	"github.com/crossplane-graft/graft/pkg/managed"
	"github.com/crossplane-graft/graft/pkg/managed/resolve"
)

// cloud is an external client. Its resources have a tag with the UID of their managed resource.
type cloud struct {
	managed.NopClient

	nameByTag map[types.UID]string
}

func (c *cloud) Find(_ context.Context, mg resource.Managed, _ asyncstate.Attempt) (asyncstate.Finding, error) {
	if name, ok := c.nameByTag[mg.GetUID()]; ok {
		return asyncstate.Found(name), nil
	}
	return asyncstate.Absent(), nil
}

// The Finder of an external client, which resolve.With calls for a create that was interrupted.
func ExampleFindWithConnector() {
	connector := managed.ExternalConnectorFn(func(context.Context, resource.Managed) (managed.ExternalClient, error) {
		return &cloud{nameByTag: map[types.UID]string{"uid-1": "vpc-42"}}, nil
	})
	finder := resolve.FindWithConnector(connector)
	for _, uid := range []types.UID{"uid-1", "uid-2"} {
		mg := &fake.ModernManaged{ObjectMeta: metav1.ObjectMeta{UID: uid}}
		found, err := finder.Find(context.Background(), mg, asyncstate.Attempt{Type: asyncstate.Create})
		fmt.Printf("%s: known %t, name %q, error %v\n", uid, found.Known, found.ExternalName, err)
	}
	// Output:
	// uid-1: known true, name "vpc-42", error <nil>
	// uid-2: known true, name "", error <nil>
}
