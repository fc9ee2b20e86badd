#!/usr/bin/env bash
# usage: hack/olm/build.sh
#
# Builds the programs of this folder, registry and channels, and prints the folder that holds them: bin/olm. What is up to
# date is not built again.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$repo/hack/olm"
mkdir -p "$repo/bin/olm"
# For this machine, whatever the caller builds for. GOFLAGS of the caller (-mod=vendor, say) are about another module.
CGO_ENABLED=0 GOOS='' GOARCH='' GOFLAGS='' GOWORK=off \
	go build -trimpath -buildvcs=false -o "$repo/bin/olm/" ./cmd/registry ./cmd/channels >&2
echo "$repo/bin/olm"
