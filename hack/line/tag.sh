#!/usr/bin/env bash
# Usage: tag.sh PATCH
#
# Tags release PATCH of both lines and of the commands, from HEAD, and writes the notes for
# it to bin/release/notes.md. Prints the tags, and pushes nothing. HEAD must have all changes
# committed, and a section of docs/CHANGELOG.md for the release.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
patch=${1:-}
if ! [[ $# -eq 1 && $patch =~ ^(0|[1-9][0-9]*)$ ]]; then
	echo "usage: hack/line/tag.sh PATCH, the third number of both versions" >&2
	exit 2
fi
new=v0.24.$patch old=v0.22.$patch runtime=v2.2.1

if [ -n "$(git status --porcelain)" ]; then
	echo "tag: commit or remove these first:" >&2
	git status --short >&2
	exit 1
fi

# The page of a release is not in docs/, so links must have the whole address.
notes=bin/release/notes.md
mkdir -p bin/release
awk -v heading="## $new and $old," '/^## / { found = index($0, heading) == 1; next } found' docs/CHANGELOG.md |
	sed -E "s#\]\(([a-z-]+\.md)#](https://github.com/crossplane-graft/graft/blob/$new/docs/\1#g" >$notes
if ! grep -q '[^[:space:]]' $notes; then
	echo "tag: docs/CHANGELOG.md has no section \"## $new and $old, DATE\"" >&2
	exit 1
fi

tree=$PWD/bin/release/line
(cd hack && go run ./line -runtime $runtime -version "$old" -write -o "$tree") >&2
index=$(mktemp -u)
trap 'rm -f "$index"' EXIT
line() { GIT_DIR=$(git rev-parse --absolute-git-dir) GIT_WORK_TREE=$tree GIT_INDEX_FILE=$index git "$@"; }
line add --all
commit=$(git commit-tree -p HEAD -m "Graft $old" "$(line write-tree)")

for tag in "$new" "hack/adopt/$new"; do
	git tag -a -m "Graft $tag" "$tag"
	echo "$tag"
done
for tag in "$old" "pkg/upjet/$old"; do
	git tag -a -m "Graft $tag" "$tag" "$commit"
	echo "$tag"
done

# In main, these replace the module that they have to require. go install accepts no replacement.
modules=(pkg/upjet hack/kubectl-graft)
GIT_INDEX_FILE=$index git read-tree HEAD
for module in "${modules[@]}"; do
	gomod=$(sed "/^replace .*=> \.\.\/\.\.\$/d; s#\(crossplane-graft/graft\) v0\.0\.0\$#\1 $new#" $module/go.mod |
		git hash-object -w --stdin)
	GIT_INDEX_FILE=$index git update-index --cacheinfo "100644,$gomod,$module/go.mod"
done
commit=$(git commit-tree -p HEAD -m "Graft $new of ${modules[*]}" "$(GIT_INDEX_FILE=$index git write-tree)")
for module in "${modules[@]}"; do
	git tag -a -m "Graft $module/$new" "$module/$new" "$commit"
	echo "$module/$new"
done
