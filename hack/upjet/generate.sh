#!/usr/bin/env bash
# Generates the test provider with upjet's pipeline: apis/, controllers/ and crds/. tree.sh runs it, in a tree.
# The committed files are those that upjet v2.3.0 generates.
set -euo pipefail
cd "$(dirname "$0")"

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
cat >"$tools/go.mod" <<'MOD'
module tools

go 1.25.0

require (
	github.com/crossplane/crossplane-tools v0.0.0-20260719180100-659f1dc036c5
	golang.org/x/tools v0.41.0
	sigs.k8s.io/controller-tools v0.20.0
)

tool (
	github.com/crossplane/crossplane-tools/cmd/angryjet
	golang.org/x/tools/cmd/goimports
	sigs.k8s.io/controller-tools/cmd/controller-gen
)
MOD
(cd "$tools" && go mod tidy && go build -o . tool)

rm -rf apis controllers crds
mkdir -p apis controllers/stock controllers/graft
PATH=$tools:$PATH go run ./generator .
rm -rf examples

"$tools/controller-gen" object:headerFile=boilerplate.go.txt paths=./apis/...
"$tools/angryjet" generate-methodsets --header-file=boilerplate.go.txt ./apis/...
"$tools/controller-gen" crd:crdVersions=v1,allowDangerousTypes=true paths=./apis/... output:crd:artifacts:config=crds
