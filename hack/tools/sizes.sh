#!/usr/bin/env bash
# Usage: sizes.sh [-now]
#
# Fails if git tracks a file above 1 MB, because a built program stays in the history for ever, or if a part of the
# repository has more lines than sizes.txt allows. With -now it prints what each part has.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
large=$(git ls-files -z | xargs -0 sh -c 'find "$@" -maxdepth 0 -type f -size +1000k' sh)
if [ -n "$large" ]; then
	printf '%s\n' "$large"
	echo "sizes: files above 1 MB are not committed; add built programs to .gitignore" >&2
	exit 1
fi

# count prints the lines, or the words, of the tracked files whose names match a pattern and not another one.
count() { git ls-files -z | grep -zE "$1" | { grep -zvE "${2:-^$}" || true; } | xargs -0 cat | wc "${3:--l}"; }
test='_test\.go$' fake='^pkg/internal/fake/'
now() {
	for part in watch reconciler crashtest upjet; do
		echo "$part $(count "^pkg/$part/.*\.go$" "$test")"
	done
	echo "core $(count '^pkg/(managed|internal/(layer|seam|names|creation|deletion))/[^/]*\.go$' "$test")"
	echo "options $(count '^pkg/(managed/[^/]*|internal/limit)/[^/]*\.go$' "$test")"
	echo "failure $(count '^pkg/internal/failure/.*\.go$' "$test")"
	echo "asyncstate $(count '^pkg/(asyncstate|internal/failure)/.*\.go$' "$test")"
	echo "pkg $(count '^pkg/.*\.go$' "$test|$fake")"
	echo "fakes $(count "$fake.*\.go$" "$test")"
	echo "hack $(count '^hack/.*\.go$' "$test|zz_")"
	echo "tests $(count "$test")"
	echo "docs $(count '^(docs/.*|README)\.md$' '' -w)"
}
if [ "${1:-}" = -now ]; then
	now
	exit
fi
status=0
while read -r part lines; do
	most=$(awk -v part="$part" '$1 == part { print $2 }' hack/tools/sizes.txt)
	if [ "$lines" -gt "$most" ]; then
		echo "sizes: $part has $lines lines (docs: words), at most $most are allowed; see hack/tools/sizes.txt" >&2
		status=1
	fi
done < <(now)
exit $status
