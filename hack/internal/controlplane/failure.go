package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
)

// outputLines is how many of the last lines of a program's output an error
// shows.
const outputLines = 15

// causes are the reasons of a failed build that lie with the machine, not with the program. They
// are tried in their order, because a full disk or too little memory also makes downloads and
// compilers fail. Signs is a regular expression for the output of the go command, advice names
// the problem and its repair.
func causes() []struct{ signs, advice string } {
	return []struct{ signs, advice string }{
		{
			signs:  `no space left on device|disk quota exceeded`,
			advice: "the disk is full: a first build needs about 3 GB, in the folders that `go env GOCACHE GOMODCACHE` prints and the one for temporary files; free some, or move them with these variables and TMPDIR",
		},
		{
			signs:  `signal: killed|out of memory|cannot allocate memory`,
			advice: "a compiler or the linker was killed, most likely because the machine ran out of memory: building kube-apiserver takes up to 2.2 GiB; free some, or build less at once with GOMAXPROCS=1",
		},
		{
			signs:  `\(running go |toolchain not available`,
			advice: "the go command is too old for the control plane's modules: install the version that the message names, or allow it to be downloaded with GOTOOLCHAIN=auto",
		},
		{
			signs: `module lookup disabled by goproxy=off|cannot find module providing package|404 not found|410 gone|` +
				`missing go.sum entry|checksum mismatch|security error`,
			advice: "the modules can't be downloaded: the proxies that `go env GOPROXY` prints must serve k8s.io/kubernetes and go.etcd.io/etcd/server/v3, with the content that go.sum has",
		},
		{
			signs: `dial tcp|no such host|connection refused|connection reset|i/o timeout|tls handshake|proxyconnect|` +
				`network is unreachable|x509:`,
			advice: "the module proxy can't be reached: check the network, and what `go env GOPROXY` prints",
		},
	}
}

// explain returns an error for a go command that failed with err. It names the cause if that
// is known, quotes the end of the output, and wraps err.
func explain(what string, err error, output []byte) error {
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		output = append(output, exit.Stderr...)
	}
	advice := ""
	if errors.Is(err, exec.ErrNotFound) {
		advice = fmt.Sprintf(": there is no go command on the PATH: install Go, or set %s to a folder with the programs",
			assetsVariable)
	}
	for _, c := range causes() {
		if advice == "" && regexp.MustCompile("(?i)"+c.signs).MatchString(err.Error()+"\n"+string(output)) {
			advice = ": " + c.advice
		}
	}
	return fmt.Errorf("%s%s: %w%s", what, advice, err, quoteOutput("the go command", output))
}

// quoteOutput returns the last lines of a program's output, ready to be added to
// an error, or nothing if there are none.
func quoteOutput(who string, output []byte) string {
	output = bytes.TrimSpace(output)
	if len(output) == 0 {
		return ""
	}
	lines := bytes.Split(output, []byte("\n"))
	lines = lines[max(0, len(lines)-outputLines):]
	return fmt.Sprintf("\n%s said last:\n\t%s", who, bytes.Join(lines, []byte("\n\t")))
}
