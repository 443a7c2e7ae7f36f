#!/usr/bin/env bash
# Usage: sizes.sh
#
# Fails if git tracks a file above 1 MB: a built program stays in the history for ever.

set -euo pipefail
large=$(git ls-files -z | xargs -0 sh -c 'find "$@" -maxdepth 0 -type f -size +1000k' sh)
if [ -n "$large" ]; then
	printf '%s\n' "$large"
	echo "sizes: files above 1 MB are not committed; add built programs to .gitignore" >&2
	exit 1
fi
