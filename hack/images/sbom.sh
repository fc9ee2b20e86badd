#!/usr/bin/env bash
# usage: hack/images/sbom.sh PROGRAM VERSION FILE
#
# Writes a list of the modules in a program of ours, in CycloneDX's format, with the program's checksum and the licences. The list comes
# from the program itself, by what the Go linker wrote into it. The same program gives the same list. "make" sets CYCLONEDX_GOMOD and
# SOURCE_DATE_EPOCH.
set -euo pipefail
export LC_ALL=C
program=$(realpath "$1") version=$2 file=$(realpath -m "$3")
tool=$(realpath "$CYCLONEDX_GOMOD")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Licences are read from the modules' sources, which are here since the program has been compiled from them.
GOPROXY=off GOFLAGS=-mod=mod "$tool" bin -json -noserial -std -licenses -version "$version" \
	-output "$scratch/list.json" "$program" 2>"$scratch/log" || { cat "$scratch/log" >&2; exit 1; }

# The API is a module of this tree. The tool lists it as ./api, without a version: these are the name and version to publish.
api=$(sed -n 's/^module //p' api/go.mod)
api_version=$(sed -n "s|^[[:space:]]*$api \(v[^ ]*\).*|\1|p" go.mod)
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
sed -E -e "s|^( *\"timestamp\": )\"[^\"]*\"|\1\"$created\"|" -e "s|pkg:golang/\./api@\(devel\)|pkg:golang/$api@$api_version|" \
	-e "/^ *\"name\": \"\.\/api\"/{s|\./api|$api|;n;s|\(devel\)|$api_version|;}" "$scratch/list.json" >"$file"
