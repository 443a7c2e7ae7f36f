package main

import (
	"fmt"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/crossplane-graft/graft/hack/kubectl-graft/internal/cluster"
)

func newVersion(p *plugin) *cobra.Command {
	out, client := &output{plugin: p}, false
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the plugin and of the cluster",
		Example: `  kubectl graft version

  # Without a cluster.
  kubectl graft version --client`,
		Args: between(0, 0),
		RunE: func(*cobra.Command, []string) error { return out.version(client) },
	}
	out.addFlags(c)
	c.Flags().BoolVar(&client, "client", false, "Print the version of the plugin only.")
	return c
}

// versions is what -o json prints.
type versions struct {
	Plugin     string `json:"plugin"`
	Kubernetes string `json:"kubernetes,omitempty"`
	Managed    int    `json:"managedKinds,omitempty"`
	Composite  int    `json:"compositeKinds,omitempty"`
	Claim      int    `json:"claimKinds,omitempty"`
}

func (o *output) version(client bool) error {
	v := versions{Plugin: o.build}
	if !client {
		if err := o.open(); err != nil {
			return err
		}
		server, err := o.cluster.ServerVersion()
		if err != nil {
			return errors.Wrap(err, "cannot read the version of the API server")
		}
		v.Kubernetes = server.GitVersion
		kinds := func(category string) int { return len(o.cluster.InCategories(category)) }
		v.Managed, v.Composite, v.Claim = kinds(cluster.Managed), kinds(cluster.Composite), kinds(cluster.Claim)
	}
	if !o.isText() {
		return o.print("Version", v)
	}
	fmt.Fprintf(o.streams.Out, "kubectl graft %s\n", v.Plugin)
	if !client {
		fmt.Fprintf(o.streams.Out, "Kubernetes %s\nKinds: %d of managed resources, %d of composites, %d of claims\n",
			v.Kubernetes, v.Managed, v.Composite, v.Claim)
	}
	return nil
}
