#!/usr/bin/env bash
# usage: hack/images/build.sh
#
# Builds the programs for images and prints the folder that holds them, bin/images:
#
#   images   writes images, from hack/tools/images
#   crane    pushes and reads them, and serves them from memory; https://github.com/google/go-containerregistry
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$repo/hack/tools"
mkdir -p "$repo/bin/images"
# For this machine, whatever the caller builds for.
GOFLAGS=$("$repo/hack/goflags.sh")
export GOFLAGS
CGO_ENABLED=0 GOOS='' GOARCH='' GOWORK=off go build -o "$repo/bin/images/" ./images github.com/google/go-containerregistry/cmd/crane >&2
echo "$repo/bin/images"
