#!/bin/sh
# apply.sh makes a fork of Crossplane v2.4.0 use pkg/watch in place of internal/engine.
# Run it in the folder with Crossplane's go.mod. docs/forks.md says what it does, and
# `make fork` tests it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ -d internal/engine ] || {
	echo "apply.sh: there is no internal/engine here. Run it once, in the folder with Crossplane's go.mod." >&2
	exit 1
}

# The module, from this checkout of Graft.
go mod edit -require=github.com/crossplane-graft/graft@v0.0.0 -replace=github.com/crossplane-graft/graft="$here/../.."

# The import. The name engine stays.
grep -rl '"github.com/crossplane/crossplane/v2/internal/engine"' --include='*.go' cmd internal | while read -r f; do
	sed 's#"github.com/crossplane/crossplane/v2/internal/engine"#engine "github.com/crossplane-graft/graft/pkg/watch"#' "$f" >"$f.new"
	mv "$f.new" "$f"
	gofmt -w "$f"
done

# The cache, the collector, the metrics and the debug page.
git apply --whitespace=nowarn "$here/watch.patch"

# What nothing uses any more.
rm -r internal/engine internal/controller/apiextensions/composite/watch

go mod tidy
