//go:build real

package real

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const graftModule = "github.com/crossplane-graft/graft"

// A provider is a released one, and the line of Graft that it needs.
type provider struct {
	path, version string

	// runtime is the release of crossplane-runtime of the line, and graft any version
	// of the line: it is replaced by the line's tree.
	runtime, graft string
}

func (p provider) source(t *testing.T) string {
	t.Helper()
	var downloaded struct{ Dir string }
	must(
		t,
		json.Unmarshal(
			[]byte(run(t, t.TempDir(), "go", "mod", "download", "-json", p.path+"@"+p.version)), &downloaded,
		),
	)
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(downloaded.Dir)))
	run(t, dir, "chmod", "-R", "u+w", ".") // The module cache is read-only.
	return dir
}

// adopted returns a copy of the provider's source into which adopt has put Graft. Go mod
// tidy is left to do.
func (p provider) adopted(t *testing.T) string {
	t.Helper()
	dir, line := p.source(t), filepath.Join(t.TempDir(), "line")
	run(t, "..", "go", "run", "./line", "-runtime", p.runtime, "-write", "-o", line)
	t.Log(run(t, filepath.Join("..", "adopt"), "go", "run", ".", "-C", dir, "-trackers", "-version", p.graft))
	run(t, dir, "go", "mod", "edit", "-replace", graftModule+"="+line)
	return dir
}

func build(t *testing.T, dir, pkg string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "provider")
	run(t, dir, "go", "build", "-trimpath", "-o", program, pkg)
	return program
}

// background starts a command, and returns what sends it a signal and waits for its end.
// A shell between sends the signal if the test itself is killed.
func background(t *testing.T, signal string, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	shell, err := exec.LookPath("sh")
	must(t, err)
	cmd.Path, cmd.Args = shell, append(
		[]string{"sh", "-c", `"$@" & read -r line; kill -"$0" $!; wait`, signal}, cmd.Args...,
	)
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	return func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
