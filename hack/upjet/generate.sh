#!/usr/bin/env bash
# Generates the test provider with upjet's pipeline: apis/, controllers/ and crds/.
# Run it in the tree of the 2.2 line (see docs/upjet.md), in this directory.
set -euo pipefail
cd "$(dirname "$0")"

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
GOBIN=$tools go install golang.org/x/tools/cmd/goimports@v0.41.0
GOBIN=$tools go install github.com/crossplane/crossplane-tools/cmd/angryjet@v0.0.0-20251017183449-dd4517244339
GOBIN=$tools go install sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.0

rm -rf apis controllers crds
mkdir -p apis controllers/stock controllers/graft
PATH=$tools:$PATH go run ./generator .
rm -rf examples

"$tools/controller-gen" object:headerFile=boilerplate.go.txt paths=./apis/...
"$tools/angryjet" generate-methodsets --header-file=boilerplate.go.txt ./apis/...
"$tools/controller-gen" crd:crdVersions=v1,allowDangerousTypes=true paths=./apis/... output:crd:artifacts:config=crds
