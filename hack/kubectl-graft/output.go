package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// outputVersion is the version of what -o json and the other formats print.
const outputVersion = "cli.graft.crossplane.io/v1alpha1"

const wide = "wide"

// An output prints text, or what -o asks for with one of cli-runtime's printers.
type output struct {
	*plugin

	format   string
	json     *genericclioptions.JSONYamlPrintFlags
	template *genericclioptions.KubeTemplatePrintFlags
}

// addFlags of the formats: cli-runtime's, and those of a command's own.
func (o *output) addFlags(c *cobra.Command, own ...string) {
	o.json, o.template = genericclioptions.NewJSONYamlPrintFlags(), genericclioptions.NewKubeTemplatePrintFlags()
	o.template.AddFlags(c)
	formats := slices.Concat(o.json.AllowedFormats(), o.template.AllowedFormats(), own)
	choice := strings.Join(formats, ", ")
	c.Flags().StringVarP(&o.format, "output", "o", "", "Output format. One of: "+choice+".")
	c.PreRunE = func(*cobra.Command, []string) error {
		if name, _, _ := strings.Cut(o.format, "="); name != "" && !slices.Contains(formats, name) {
			return errors.Errorf("there is no output format %q: choose one of %s", o.format, choice)
		}
		return nil
	}
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// isText reports whether the output is for a person.
func (o *output) isText() bool {
	return o.format == wide || o.format == "" && *o.template.TemplateArgument == ""
}

// print v in the chosen format.
func (o *output) print(kind string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return errors.Wrap(err, "cannot encode the output")
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &u.Object); err != nil {
		return errors.Wrap(err, "cannot encode the output")
	}
	u.SetAPIVersion(outputVersion)
	u.SetKind(kind)

	printer, err := o.json.ToPrinter(o.format)
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		printer, err = o.template.ToPrinter(o.format)
	}
	if err != nil {
		return err
	}
	return printer.PrintObj(u, o.streams.Out)
}
