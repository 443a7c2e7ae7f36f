#!/usr/bin/env bash
# Usage: newest.sh [MODULE@VERSION...]
#
# Builds and tests Graft with the given modules and the newest of what they require, and
# says what broke. By default that is the newest crossplane-runtime that the module proxy
# has. It works in a copy in a temporary folder.

set -euo pipefail
[ $# -gt 0 ] || set -- github.com/crossplane/crossplane-runtime/v2@latest

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - | tar -C "$tree" -xf -

for module in . hack; do
	(cd "$tree/$module" && go get -u "$@" && go mod tidy)
done

(cd "$tree" && go list -m "${@%@*}")

broken=()
check() { # check WHAT DIRECTORY COMMAND...
	echo "=== $1"
	(cd "$tree/$2" && "${@:3}") || broken+=("$1")
}

check "API that was added or changed" hack go test ./passthrough
check "write the pass-through" hack go run ./passthrough
check "build the library" . go vet ./...
check "test the library" . go test ./...
check "build the tools" hack go vet ./...

if [ ${#broken[@]} -gt 0 ]; then
	echo "=== Broken with $*:"
	printf '%s\n' "${broken[@]}"
	exit 1
fi
