#!/usr/bin/env bash
# Usage: pins.sh
#
# Fails if a workflow uses an action by a tag or branch, which can be moved to other code,
# or without the comment by which Dependabot knows its version.

set -euo pipefail
if git grep -nE '\buses:' -- .github | grep -vE 'uses: [^@ ]+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$'; then
	echo "pins: name an action by the digest of a commit and its version: NAME@DIGEST # v1.2.3" >&2
	exit 1
fi
