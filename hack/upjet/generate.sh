#!/usr/bin/env bash
# Generates the test provider with upjet's pipeline: apis/, controllers/ and crds/.
# Run it in the tree of the 2.2 line (see docs/upjet.md), in this directory.
set -euo pipefail
cd "$(dirname "$0")"

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
go build -o "$tools/" golang.org/x/tools/cmd/goimports github.com/crossplane/crossplane-tools/cmd/angryjet sigs.k8s.io/controller-tools/cmd/controller-gen

rm -rf apis controllers crds
mkdir -p apis controllers/stock controllers/graft
PATH=$tools:$PATH go run ./generator .
rm -rf examples

"$tools/controller-gen" object:headerFile=boilerplate.go.txt paths=./apis/...
"$tools/angryjet" generate-methodsets --header-file=boilerplate.go.txt ./apis/...
"$tools/controller-gen" crd:crdVersions=v1,allowDangerousTypes=true paths=./apis/... output:crd:artifacts:config=crds
