//go:build real

package real

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"
)

// gosdk is a module that provider-kubernetes requires, and that not every module proxy
// has. The stand-in has the names that the provider uses.
const (
	gosdk        = "github.com/nebius/gosdk"
	gosdkVersion = "v0.2.28"

	gosdkStandIn = `
-- go.mod --
module github.com/nebius/gosdk

go 1.25
-- gosdk.go --
package gosdk

import (
	"context"
	"errors"

	"github.com/nebius/gosdk/auth"
)

type SDK struct{}

func New(context.Context, ...any) (*SDK, error) { return nil, errors.New("a stand-in") }

func WithCredentials(any) any { return nil }

func ServiceAccountReader(any) any { return nil }

func (*SDK) BearerToken(context.Context) (auth.BearerToken, error) { return auth.BearerToken{}, nil }
-- auth/auth.go --
package auth

type BearerToken struct{ Token string }

func NewPrivateKeyParser(key []byte, publicKeyID, serviceAccountID string) any { return nil }
`
)

func TestKubernetes(t *testing.T) {
	dir := provider{
		path: "github.com/crossplane-contrib/provider-kubernetes", version: "v1.3.1",
		runtime: "v2.4.0", graft: "v0.24.0",
	}.adopted(t)
	withoutNebius(t, dir)
	run(t, dir, "go", "mod", "tidy")
	run(t, dir, "go", "build", "./...")
	t.Logf("provider-kubernetes' own tests:\n%s", run(t, dir, "go", "test", "./..."))
}

// withoutNebius replaces the module for Nebius if the module proxy doesn't have it.
func withoutNebius(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command("go", "mod", "download", gosdk+"@"+gosdkVersion).CombinedOutput(); err != nil {
		t.Logf(
			"The module proxy doesn't have %s %s, so nothing is shown of the authentication to Nebius: the provider "+
				"is built with a stand-in. %s",
			gosdk,
			gosdkVersion,
			out,
		)
		at := t.TempDir()
		must(t, os.Mkdir(filepath.Join(at, "auth"), 0o755))
		for _, f := range txtar.Parse([]byte(gosdkStandIn)).Files {
			must(t, os.WriteFile(filepath.Join(at, f.Name), f.Data, 0o600))
		}
		run(t, dir, "go", "mod", "edit", "-replace", gosdk+"="+at)
	}
}
