#!/usr/bin/env bash
# Usage: newest.sh [MODULE[@VERSION]...]
#
# Builds and tests Graft with the newest releases of the given modules that the module
# proxy has, crossplane-runtime by default, and says what broke. It works in a copy in a
# temporary folder.

set -euo pipefail
[ $# -gt 0 ] || set -- github.com/crossplane/crossplane-runtime/v2

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - | tar -C "$tree" -xf -

broken=()
check() { # check WHAT DIRECTORY COMMAND...
	echo "=== $1"
	(cd "$tree/$2" && "${@:3}") || broken+=("$1")
}

raise() { # raise DIRECTORY MODULE...
	(cd "$tree/$1" && go get -u "${@:2}" && go mod tidy)
}

check "raise the library's dependencies" . raise . "$@"
check "raise the tools' dependencies" . raise hack "$@"
(cd "$tree" && go list -m "${@%@*}")

check "API that upstream added or changed" hack go test ./passthrough
check "write the pass-through" hack go run ./passthrough
check "build the library" . go vet ./...
check "test the library" . go test ./...
check "build the tools" hack go vet ./...

if [ ${#broken[@]} -gt 0 ]; then
	echo "=== Broken with $*:"
	printf '%s\n' "${broken[@]}"
	exit 1
fi
