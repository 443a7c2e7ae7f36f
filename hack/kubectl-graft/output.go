package main

import (
	"encoding/json"
	"io"
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
	format   string
	json     *genericclioptions.JSONYamlPrintFlags
	template *genericclioptions.KubeTemplatePrintFlags
	wide     bool
}

func (o *output) addFlags(c *cobra.Command, hasWide bool) {
	o.json, o.template = genericclioptions.NewJSONYamlPrintFlags(), genericclioptions.NewKubeTemplatePrintFlags()
	o.template.AddFlags(c)
	formats := append(o.json.AllowedFormats(), o.template.AllowedFormats()...)
	if hasWide {
		formats = append(formats, wide)
	}
	choice := strings.Join(formats, ", ")
	c.Flags().StringVarP(&o.format, "output", "o", "", "Output format. One of: "+choice+".")
	c.PreRunE = func(*cobra.Command, []string) error {
		if name, _, _ := strings.Cut(o.format, "="); name != "" && !slices.Contains(formats, name) {
			return errors.Errorf("there is no output format %q: choose one of %s", o.format, choice)
		}
		return nil
	}
	o.wide = hasWide
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// text reports whether the output is for a person, and whether with all columns.
func (o *output) text() (isText, all bool) {
	all = o.wide && o.format == wide
	return all || o.format == "" && (o.template.TemplateArgument == nil || *o.template.TemplateArgument == ""), all
}

// print v in the chosen format.
func (o *output) print(w io.Writer, kind string, v any) error {
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
	return printer.PrintObj(u, w)
}
