#!/usr/bin/env bash
# Writes the tree in which pkg/upjet and the test provider are tested with one version of upjet, and generates the
# test provider there:
#
#   tree.sh v2.4.1 DIR         with a release, which requires crossplane-runtime v2.2
#   tree.sh upjet.tar.gz DIR   with an archive of upjet's main branch, in the line for crossplane-runtime v2.4
set -euo pipefail
upjet=$1 dir=$2
here=$(cd "$(dirname "$0")" && pwd)
module=github.com/crossplane/upjet/v2

case $upjet in
v*) runtime=v2.2.1 source="$module@$upjet" ;;
*) runtime=v2.4.0 source="$dir/.upjet" ;;
esac
(cd "$here/.." && go run ./line -runtime "$runtime" -write -o "$dir")
if [ -f "$upjet" ]; then
	mkdir "$source"
	tar -xz -C "$source" --strip-components=1 -f "$upjet"
fi

# A test of a dependency imports a package that its module doesn't have, which -e tolerates.
for m in pkg/upjet hack/upjet; do
	(cd "$dir/$m" && go mod edit -replace "$module=$source" -replace "github.com/upbound/uptest=$dir/hack/upjet/uptest" &&
		go mod tidy -e)
done
"$dir/hack/upjet/generate.sh"
(cd "$dir/hack/upjet" && go vet -tags upjet ./...)
