package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A guard ends processes and removes their folder when this process dies in a
// way that leaves it no time for that: killed, a panic, the timeout of go test.
// Etcd and kube-apiserver are in process groups of their own, so that not even
// an interrupt from the terminal reaches them.
//
// It is a shell that waits on a pipe that only this process can write to. The
// pipe's end is this process's end, on every Unix and whichever thread started
// what; a parent-death signal is Linux's alone, depends on the thread, and can't
// be set for processes that envtest starts.
//
// Start a program through the script that wrap returns, to guard it.
type guard struct {
	dir   string
	shell *exec.Cmd
	pipe  io.WriteCloser
}

// guardScript waits for a line, which says that all is well, or for the pipe's
// end. Then it renames the folder with the process ids, so that no wrapped
// program can start any more, and kills those that have.
const guardScript = `
trap '' HUP INT TERM
read -r line && exit 0
cd /
mv "$1/pids" "$1/dead"
for f in "$1"/dead/*; do
	read -r pid <"$f" && { kill -s KILL -- "-$pid" || kill -s KILL "$pid"; }
done
rm -rf "$1" || rm -rf "$1"
`

// wrapScript notes its process id and turns into the program. Its log goes to a file,
// not a pipe: no goroutine has to copy it, or wait for the end of all processes that have it.
const wrapScript = `#!/bin/sh
echo $$ >%s || exit 1
exec %s "$@" 2>%s
`

// startGuard starts a guard that removes dir, which exists, in the end. End must be
// called, and the guard kept until then: the garbage collector closes the pipe of
// a guard that is no longer referenced.
func startGuard(dir string) (*guard, error) {
	g := &guard{dir: dir, shell: exec.Command("/bin/sh", "-c", guardScript, "sh", dir)}
	// What ends this process must not end the guard.
	g.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := g.shell.StdinPipe()
	g.pipe = pipe
	if err = errors.Join(err, os.Mkdir(filepath.Join(dir, "pids"), 0o755)); err == nil {
		err = g.shell.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot guard processes: %w", err)
	}
	return g, nil
}

// wrap returns the path of a script that runs the program at path under guard, with its
// standard error in the file log. The program should be started in a process group of its
// own, which is killed with it.
func (g *guard) wrap(name, path, log string) (string, error) {
	script := filepath.Join(g.dir, name+".sh")
	return script, writeScript(script, fmt.Sprintf(wrapScript, quote(g.pidFile(name)), quote(path), quote(log)))
}

func (g *guard) pidFile(name string) string { return filepath.Join(g.dir, "pids", name) }

// pid returns the process of a guarded program: the script that wrap returns has
// turned into it.
func (g *guard) pid(name string) (int, error) {
	text, err := os.ReadFile(g.pidFile(name))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// end ends the guard. If the guarded processes are not gone, the guard kills them and
// removes the folder before.
func (g *guard) end(gone bool) error {
	line := ""
	if gone {
		line = "done\n"
	}
	_, err := io.WriteString(g.pipe, line)
	return errors.Join(err, g.pipe.Close(), g.shell.Wait())
}

// writeScript writes an executable file. Meanwhile no child is forked, because it would hold
// the file open for writing, and no process could execute the file until the child ends.
func writeScript(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o755)
}

// quote makes a shell take s as it is.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
