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

Usage:
  adopt [-n] [-v] [-C dir] [-version v1.2.3] [-trackers] [-revert]

Flags:
  -C dir        the root of the provider's module (default ".")
  -n            write nothing; print what would change, as a diff
  -v            list every changed file and every place of a hint
  -version v    the version of Graft to require in go.mod (default: that of the
                line for the provider's crossplane-runtime which was released
                together with this command, if it is a released one)
  -trackers     also replace the constructors of ProviderConfig usage trackers by
                Graft's, which don't keep a managed resource from being deleted
                in a namespace that is being deleted
  -revert       go back: undo the import and -trackers; then go build names each
                use of what crossplane-runtime doesn't have

Examples:
  go install github.com/crossplane-graft/graft/hack/adopt@latest
  adopt -n
  adopt
  adopt -C ../provider-x

Exit status:
  0  everything was done, or there was nothing to do
  1  something is left for you; the rest was done (nothing is, if crossplane-runtime
     has to be raised first)
  2  the command could not run (flags, go.mod)
`

func main() {
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

// command runs the command with the given arguments, and returns the exit status.
func command(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("adopt", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var o options
	flags.StringVar(&o.dir, "C", ".", "")
	flags.BoolVar(&o.dryRun, "n", false, "")
	flags.BoolVar(&o.verbose, "v", false, "")
	flags.StringVar(&o.version, "version", "", "")
	flags.BoolVar(&o.revert, "revert", false, "")
	flags.BoolVar(&o.trackers, "trackers", false, "")
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q: give the module's directory with -C", flags.Arg(0))
	}
	if err == nil {
		err = checkVersion(o.version)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return exitDone
	case err != nil:
		fmt.Fprintf(stderr, "adopt: %v\n\n%s", err, usage)
		return exitFailed
	}

	if info, ok := debug.ReadBuildInfo(); ok {
		o.ownVersion = releasedVersion(info)
	}
	r, err := migrate(o)
	if err != nil {
		fmt.Fprintf(stderr, "adopt: %v\n", err)
		return exitFailed
	}
	if err := r.print(stdout); err != nil {
		fmt.Fprintf(stderr, "adopt: cannot print the report: %v\n", err)
		return exitFailed
	}
	if len(r.left) > 0 {
		return exitLeft
	}
	return exitDone
}
