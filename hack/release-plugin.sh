#!/usr/bin/env bash
# usage: hack/release-plugin.sh VERSION FOLDER [PLATFORM...]
#
# Writes what a release has of the plugin: for each platform an archive and its SBOM, and a manifest for krew. Then SHA256SUMS has
# the checksums of all files in the folder that users download. Nothing in an archive depends on the machine or the day. Needs GNU
# tar; "make release" sets CYCLONEDX_GOMOD and SOURCE_DATE_EPOCH.
set -euo pipefail
export LC_ALL=C
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/.."
GOFLAGS=$(hack/goflags.sh)
export GOFLAGS

version=$1 folder=$(realpath -m "$2")
shift 2
(($# > 0)) || set -- darwin/amd64 darwin/arm64 linux/amd64 linux/arm64 windows/amd64 windows/arm64
repository=https://github.com/verticalscaler/verticalscaler-operator
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$folder"

cat >"$folder/vscaler.yaml" <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: vscaler
spec:
  version: $version
  homepage: $repository
  shortDescription: Show and explain the sizing of Deployments
  description: |
    Shows what VerticalScaler does to the CPU and memory of Deployments, and why: a list of all scalers, an
    explanation of each number, a live view in the terminal, a local dashboard, and a backtest with recorded usage.
  caveats: |
    The cluster needs the VerticalScaler operator: $repository
    For completions, put kubectl_complete-vscaler of the release into your PATH.
  platforms:
END

# The names have no version: releases/latest/download has them under the same address forever.
for platform; do
	os=${platform%/*} arch=${platform#*/}
	name=kubectl-vscaler_${os}_$arch
	program=kubectl-vscaler
	[[ $os != windows ]] || program+=.exe
	root=$scratch/$name
	mkdir "$root"
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT='' GOWORK=off \
		go build -ldflags "-s -w -X main.version=$version" -o "$root/$program" ./cmd/kubectl-vscaler
	install -m 0644 LICENSE "$root/"
	[[ $os == windows ]] || install -m 0755 cmd/kubectl-vscaler/kubectl_complete-vscaler "$root/"
	(cd "$root" && tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar -c -- *) |
		gzip -9n >"$folder/$name.tar.gz"
	hack/images/sbom.sh "$root/$program" "$version" "$folder/$name.cdx.json"
	cat >>"$folder/vscaler.yaml" <<END
  - selector:
      matchLabels: {os: $os, arch: $arch}
    uri: $repository/releases/download/$version/$name.tar.gz
    sha256: $(sha256sum "$folder/$name.tar.gz" | cut -d' ' -f1)
    bin: $program
    files:
    - {from: $program, to: .}
    - {from: LICENSE, to: .}
END
done
(cd "$folder" && sha256sum -- *.yaml *.tar.gz *.json >SHA256SUMS)
