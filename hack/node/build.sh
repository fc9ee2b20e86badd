#!/usr/bin/env bash
# usage: hack/node/build.sh
#
# Builds the programs and images of the node tier, and prints the folder that holds them:
#
#   nodebox      what up.sh calls
#   stress       the program in the images, also useful on its own
#   stress.tar   the image verticalscaler.local/stress:dev
#   pause.tar    the image verticalscaler.local/pause:dev
#
# The folder is bin/node/KEY, where KEY follows from the sources and the Go version. If it is there, nothing is built.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi
command -v go >/dev/null || fail "the go command is missing"

cd "$here"
GOFLAGS=$("$repo/hack/goflags.sh")
export GOFLAGS GOWORK=off CGO_ENABLED=0 GOOS=linux
key=$({
	go env GOVERSION GOARCH GOFLAGS
	find . -type f \( -name '*.go' -o -name 'go.*' -o -name build.sh \) ! -name '*_test.go' | LC_ALL=C sort | xargs sha256sum
} | sha256sum | cut -c1-12)
folder=$repo/bin/node/$key

if [ ! -e "$folder/pause.tar" ]; then
	mkdir -p "$repo/bin/node"
	# Built aside and renamed when complete: another script may be doing the same at this moment.
	fresh=$(mktemp -d "$repo/bin/node/.build-XXXXXX")
	trap 'rm -rf "$fresh"' EXIT
	go build -ldflags '-s -w' -o "$fresh/" ./cmd/... >&2
	images=$("$repo/hack/images/build.sh")/images
	mkdir "$fresh/root"
	cp "$fresh/stress" "$fresh/root/stress"
	for image in stress:serve pause:pause; do
		"$images" -name "verticalscaler.local/${image%:*}:dev" -archive "$fresh/${image%:*}.tar" \
			-user 65532:65532 -entrypoint "/stress ${image#*:}" "linux/$(go env GOARCH)=$fresh/root"
	done
	rm -r "$fresh/root"
	chmod 755 "$fresh"
	mv -T "$fresh" "$folder" 2>/dev/null || [ -e "$folder/pause.tar" ] || fail "cannot write $folder"
fi
echo "$folder"
