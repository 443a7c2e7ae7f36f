#!/usr/bin/env bash
# Usage: mutants.sh PKG N SEED [PKG...]
#
# Says how many small faults in a package its tests notice, and which they don't. go-mutesting
# writes a copy of a file for each mutant, and the seed selects N of them: the same seed and
# source give the same sample, and a change of the source changes little of it. Only the go
# command reads a mutant, through -overlay. The tests of further packages may notice it, too.

set -eu
pkg=${1#./} n=$2 seed=$3
tests=("./$pkg" "${@:4}")
export TMPDIR
TMPDIR=$(mktemp -d)
trap 'rm -rf "$TMPDIR"' EXIT

# go-mutesting loads a package with all that it imports, from source and once for each file,
# which takes minutes. This answer leaves out the imports: mutating needs hardly any type from
# another package. The price is a few more mutants that don't compile.
driver=$TMPDIR/driver
go list -f '#!/bin/sh
cat <<END{{define "files"}}[{{range $i, $f := .GoFiles}}{{if $i}},{{end}}"{{$.Dir}}/{{$f}}"{{end}}]{{end}}
{"Compiler": "gc", "Roots": ["p"], "Packages": [
	{"ID": "p", "Name": "{{.Name}}", "PkgPath": "p", "GoFiles": {{template "files" .}}, "CompiledGoFiles": {{template "files" .}}}]}
END' "./$pkg" >"$driver"
chmod +x "$driver"

# A test that fails without a mutant would kill each of them.
go test "${tests[@]}" >&2

# shellcheck disable=SC2046 # Names of Go files have no spaces.
GOPACKAGESDRIVER=$driver bin/go-mutesting --no-exec --do-not-remove-tmp-folder \
	$(grep -L '^// Code generated .* DO NOT EDIT\.$' $(go list -f "{{range .GoFiles}}$pkg/{{.}} {{end}}" "./$pkg")) >/dev/null

# file_of prints the path of the file that a copy is of, and change the lines in which they differ.
file_of() { echo "$pkg/$(basename "${1%.*}")"; }
change() { diff "$(file_of "$1")" "$1" | sed '/^[<>]/!d; s/^<[[:space:]]*/  - /; s/^>[[:space:]]*/  + /'; }

for copy in "$TMPDIR"/go-mutesting-*/"$pkg"/*.go.*[0-9]; do
	printf '%s %s\n' "$( (echo "$seed $(file_of "$copy")"; change "$copy") | sha256sum | cut -c 1-64)" "$copy"
done | sort >"$TMPDIR/all"
head -n "$n" "$TMPDIR/all" | cut -d ' ' -f 2 >"$TMPDIR/sample"
echo "$pkg: $(wc -l <"$TMPDIR/all") mutants, sample of $(wc -l <"$TMPDIR/sample"), seed $seed"

# passes fails at the first package whose tests fail with an overlay. The mutant's own comes first.
passes() {
	local p
	for p in "${tests[@]}"; do
		go test -vet=off -failfast -timeout 2m -ldflags='-s -w' -overlay "$1" "$p" || return 1
	done
}

# test_mutant tests a copy, and adds a line to the results.
test_mutant() {
	local file overlay=$1.json line
	file=$(file_of "$1")
	printf '{"Replace": {"%s": "%s"}}' "$PWD/$file" "$1" >"$overlay"
	if ! go build -overlay "$overlay" "./$pkg" 2>/dev/null; then
		echo broken >>"$TMPDIR/results"
	elif passes "$overlay" >/dev/null 2>&1; then
		echo survived >>"$TMPDIR/results"
		line=$(cmp "$file" "$1" | sed 's/.* line //')
		printf 'survived %s:%s\n%s\n' "$file" "$line" "$(change "$1")"
	else
		echo killed >>"$TMPDIR/results"
	fi
}

while read -r copy; do
	while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
	test_mutant "$copy" &
done <"$TMPDIR/sample"
wait
count() { grep -c "$1" "$TMPDIR/results" || true; }
echo "killed $(count killed), survived $(count survived); $(count broken) more don't compile"
