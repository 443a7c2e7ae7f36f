#!/usr/bin/env bash
# Usage: krew.sh VERSION [OS/ARCH...]
#
# Builds the archives of a release of kubectl-graft, and the manifest by which krew
# installs them, in bin/krew. To be run in a checkout of the release's tag.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
version=$1
shift
[ $# -gt 0 ] || set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
root=$(cd ../.. && pwd)
out=$root/bin/krew
releases=https://github.com/crossplane-graft/graft/releases/download/hack%2Fkubectl-graft%2F$version
rm -rf "$out" && mkdir -p "$out"

cat >"$out/graft.yaml" <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: graft
spec:
  version: $version
  homepage: https://github.com/crossplane-graft/graft
  shortDescription: Say why Crossplane objects are stuck, and repair them
  description: |
    Says why a managed resource, composite or claim of Crossplane is not ready or
    not deleted, down to what blocks it, and prints the command that repairs it.
    Lists all that is stuck, settles interrupted creates, removes finalizers of
    controllers that no longer exist, orphans external resources, and backs up
    external names. It works with providers that use Graft, and with others as far
    as their objects tell.
  platforms:
EOF

for platform in "$@"; do
	os=${platform%/*} arch=${platform#*/} exe=kubectl-graft
	[ "$os" != windows ] || exe=$exe.exe
	dir=$(mktemp -d)
	# The version that the program prints is that of the tag.
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=true -ldflags='-s -w' -o "$dir/$exe" .
	cp "$root/LICENSE" "$dir"
	archive=kubectl-graft_${os}_$arch.tar.gz
	tar -C "$dir" --owner=0 --group=0 --mtime=@0 -czf "$out/$archive" "$exe" LICENSE
	rm -r "$dir"
	cat >>"$out/graft.yaml" <<EOF
  - selector:
      matchLabels: {os: $os, arch: $arch}
    uri: $releases/$archive
    sha256: $(sha256sum "$out/$archive" | cut -d' ' -f1)
    bin: $exe
EOF
done
echo "$out/graft.yaml"
