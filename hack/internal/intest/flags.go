package intest

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// Exit statuses of a command.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Parse the arguments of a command that takes flags only. The usage is printed before what the
// flags say of themselves. ok is false if the command ends with the status.
func Parse(flags *flag.FlagSet, usage string, args []string, stdout, stderr io.Writer) (exitStatus int, ok bool) {
	flags.Usage = func() {}
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(stdout)
		flags.Usage()
		return ExitOK, false
	case err != nil:
		return Misused(flags, stderr, "%v", err), false
	case flags.NArg() > 0:
		return Misused(flags, stderr, "there is no argument %q", flags.Arg(0)), false
	default:
		return ExitOK, true
	}
}

// Misused says how a command that was parsed is not used, and how it is. It returns the exit status.
func Misused(flags *flag.FlagSet, stderr io.Writer, format string, a ...any) (exitStatus int) {
	fmt.Fprintf(stderr, flags.Name()+": "+format+"\n\n", a...)
	flags.SetOutput(stderr)
	flags.Usage()
	return ExitUsage
}
