package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

const usage = `adopt moves a Crossplane provider to Graft: it replaces the import of
crossplane-runtime's pkg/reconciler/managed by Graft's, in every Go file of a
module, adds Graft to go.mod, and says what it left alone and why.
It doesn't use the network.

  go install github.com/crossplane-graft/graft/hack/adopt@latest
  adopt -n
  adopt
  adopt -C ../provider-x

Exit status:
  0  everything was done, or there was nothing to do
  1  something is left for you; the rest was done (nothing is, if crossplane-runtime
     has to be raised first)
  2  the command could not run (flags, go.mod)

Flags:
`

func main() {
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the command with the given arguments, and returns the exit status.
func command(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("adopt", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	var o options
	flags.StringVar(&o.dir, "C", ".", "the root `dir`ectory of the provider's module")
	flags.BoolVar(&o.dryRun, "n", false, "write nothing; print what would change, as a diff")
	flags.BoolVar(&o.verbose, "v", false, "list every changed file and every place of a hint")
	flags.StringVar(&o.version, "version", "", "the `version` of Graft to require in go.mod (default: that of\n"+
		"the line for the provider's crossplane-runtime which was released\n"+
		"together with this command, if it is a released one)")
	flags.BoolVar(&o.trackers, "trackers", false, "also replace the constructors of ProviderConfig usage trackers\n"+
		"by Graft's, which don't keep a managed resource from being deleted\n"+
		"in a namespace that is being deleted")
	flags.BoolVar(&o.revert, "revert", false, "go back: undo the import and -trackers; then go build names each\n"+
		"use of what crossplane-runtime doesn't have")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		return exitFailed
	}

	if info, ok := debug.ReadBuildInfo(); ok {
		o.ownVersion = releasedVersion(info)
	}
	err := checkVersion(o.version)
	if flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q: give the module's directory with -C", flags.Arg(0))
	}
	var r *report
	if err == nil {
		r, err = migrate(o)
	}
	if err == nil {
		err = r.print(stdout)
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "adopt: %v\n", err)
		return exitFailed
	case len(r.left) > 0:
		return exitLeft
	default:
		return exitDone
	}
}
