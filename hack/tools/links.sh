#!/usr/bin/env bash
# Usage: links.sh
#
# Fails if a Markdown file that git knows links to a file or a heading that is not there. It prints file:line and the
# target. Addresses of the web are left out.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
git ls-files --cached --others --exclude-standard '*.md' ':!*/testdata/*' | sort -u |
	while read -r file; do if [ -e "$file" ]; then echo "$file"; fi; done | xargs awk '
# slug returns the anchor that GitHub makes of a heading.
function slug(text) {
	text = tolower(text)
	gsub(/\]\([^)]*\)/, "", text)
	gsub(/[^a-z0-9 _-]/, "", text)
	gsub(/ /, "-", text)
	return text
}
# clean resolves . and .. in a path.
function clean(path,    parts, n, i, out, k) {
	n = split(path, parts, "/")
	k = 0
	for (i = 1; i <= n; i++) {
		if (parts[i] == "..") k--
		else if (parts[i] != "." && parts[i] != "") out[++k] = parts[i]
	}
	path = out[1]
	for (i = 2; i <= k; i++) path = path "/" out[i]
	return path
}
FNR == 1 { code = 0; split("", seen) }
/^ *```/ { code = !code; next }
code { next }
/^#+ / {
	text = $0
	sub(/^#+ /, "", text)
	anchor = slug(text)
	anchors[FILENAME "#" anchor (seen[anchor]++ ? "-" seen[anchor] - 1 : "")] = 1
}
{
	rest = $0
	while (match(rest, /\]\([^) ]+\)/)) {
		link = substr(rest, RSTART + 2, RLENGTH - 3)
		rest = substr(rest, RSTART + RLENGTH)
		if (link !~ /^(https?|mailto):/) { n++; from[n] = FILENAME; line[n] = FNR; to[n] = link }
	}
}
END {
	for (i = 1; i <= n; i++) {
		path = to[i]; anchor = ""
		if (k = index(path, "#")) { anchor = substr(path, k + 1); path = substr(path, 1, k - 1) }
		dir = from[i]
		if (!sub(/\/[^\/]*$/, "", dir)) dir = "."
		target = path == "" ? from[i] : clean(dir "/" path)
		bad = system("test -e \"" target "\"") != 0 || anchor != "" && target ~ /\.md$/ && !((target "#" anchor) in anchors)
		if (bad) { printf "%s:%d: %s is not there\n", from[i], line[i], to[i]; status = 1 }
	}
	exit status
}' /dev/null
