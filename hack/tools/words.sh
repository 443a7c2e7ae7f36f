#!/usr/bin/env bash
# Usage: words.sh [PATH...]
#
# Finds turns of phrase that words.txt advises against, in the comments, strings and
# documents that git knows below the current directory. Prints file:line and what to
# write, and fails if there are any. Left out are testdata, the license, and lines of
# tests that name a seed or speak of upstream.

set -euo pipefail
list=$(dirname "${BASH_SOURCE[0]}")/words.txt
found=0

while IFS=$'\t' read -r words instead; do
	hits=$(git grep --untracked -niwIE "$words" -- "${@:-.}" ':!*/testdata/*' ':!*/tools/words.*' ':!LICENSE' ':!*.sum' |
		grep -vE 'http\.NoBody|_test\.go:[0-9]+:.*\b(upstream|seed)\b' || true)
	[ -n "$hits" ] || continue

	found=1
	while IFS= read -r hit; do
		printf '%s\n\tsay: %s\n' "$hit" "$instead"
	done <<<"$hits"
done < <(grep -v '^#' "$list")

if [ $found -ne 0 ]; then
	echo "words: see Plain words in .github/CONTRIBUTING.md" >&2
	exit 1
fi
