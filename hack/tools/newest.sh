#!/usr/bin/env bash
# Usage: newest.sh [-build] [MODULE@VERSION...]
#
# Builds and tests Graft with each of the given modules and what it requires, and says what
# broke. By default these are the releases of controller-runtime that providers are on, and
# the newest crossplane-runtime that the module proxy has, with the newest of what that
# requires. Each gets a copy of the tree in a temporary folder. With -build nothing is
# tested, and the newest crossplane-runtime is left out.

set -euo pipefail
build=
if [ "${1:-}" = -build ]; then
	build=1
	shift
fi
if [ $# -eq 0 ]; then
	set -- sigs.k8s.io/controller-runtime@v0.23.1 sigs.k8s.io/controller-runtime@v0.24.1 sigs.k8s.io/controller-runtime@v0.25.2
	[ "$build" ] || set -- "$@" github.com/crossplane/crossplane-runtime/v2@latest
fi

trees=$(mktemp -d)
trap 'rm -rf "$trees"' EXIT
broken=()

check() { # check WHAT COMMAND...
	echo "=== $1"
	(cd "$tree" && "${@:2}") || broken+=("$1")
}

for module in "$@"; do
	tree=$trees/$module
	mkdir -p "$tree"
	git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - | tar -C "$tree" -xf -
	case $module in
	*/crossplane-runtime/*) update=-u ;;
	*) update= ;;
	esac
	check "$module: require" sh -c "go get $update '$module' && go mod tidy && go list -m '${module%@*}'"
	check "$module: build the library and its tests" go vet ./...
	[ "$build" ] || check "$module: test the library" go test ./...

	case $module in
	*/crossplane-runtime/*)
		check "$module: require in the tools" sh -c "cd hack && go get -u '$module' && go mod tidy"
		check "$module: API that was added or changed" sh -c 'cd hack && go test ./passthrough'
		check "$module: write the pass-through" sh -c 'cd hack && go run ./passthrough'
		check "$module: build the tools" sh -c 'cd hack && go vet ./...'
		;;
	esac
done

if [ ${#broken[@]} -gt 0 ]; then
	echo "=== Broken with $*:"
	printf '%s\n' "${broken[@]}"
	exit 1
fi
