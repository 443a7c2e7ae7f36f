// Command generator generates the test provider with upjet's pipeline: the API once,
// the controllers twice, without Graft and with it. Run it with the directory of the
// test provider, and with goimports in the PATH.
package main

import (
	"os"
	"path/filepath"

	upjetconfig "github.com/crossplane/upjet/v2/pkg/config"
	"github.com/crossplane/upjet/v2/pkg/pipeline"
	"github.com/crossplane/upjet/v2/pkg/types"

	"github.com/crossplane-graft/graft/pkg/hack/upjet/config"
)

func main() {
	dir := os.Args[1]
	generate(dir, "stock", config.Stock())
	generate(dir, "graft", config.Graft())
}

func generate(dir, controllers string, p *upjetconfig.Provider) {
	r := &pipeline.PipelineRunner{
		DirAPIs:               filepath.Join(dir, "apis"),
		DirControllers:        filepath.Join(dir, "controllers", controllers),
		DirExamples:           filepath.Join(dir, "examples"),
		DirHack:               dir,
		ModulePathAPIs:        p.ModulePath + "/apis",
		ModulePathControllers: p.ModulePath + "/controllers/" + controllers,
		Scope:                 types.CRDScopeNamespaced,
	}
	r.Run(p)
}
