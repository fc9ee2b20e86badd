#!/usr/bin/env bash
# usage: hack/images/check.sh
#
# Checks the images: the operator's is built twice and has the expected files, and it and the catalog's run as their users. Needs
# root on Linux. "make release-check" calls it, builds the catalog's image before, and sets VERSION.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
crane=$(hack/images/build.sh)/crane

fail() { echo "release-check: $*" >&2; exit 1; }

scratch=$(mktemp -d)
server=
trap 'if [[ -n $server ]]; then kill "$server"; fi; rm -rf "$scratch"' EXIT
chmod 755 "$scratch"

# The second build is of a copy in another folder, with another mask, another time zone and an empty build cache. A copy has no
# commit for the labels.
export REVISION='' PLATFORMS=''
name=localhost/verticalscaler-operator:check
IMAGE_ARCHIVE=$scratch/first.tar hack/images/image.sh operator $name
mkdir "$scratch/tree"
cp -r LICENSE Dockerfile go.mod go.sum api controllers internal "$scratch/tree"
cp -r --parents cmd/operator hack/images hack/tools/go.mod hack/tools/go.sum hack/tools/images "$scratch/tree"
chmod -R go= "$scratch/tree"
(umask 077 && IMAGE_ARCHIVE=$scratch/second.tar TZ=Pacific/Chatham GOCACHE=$scratch/cache "$scratch/tree/hack/images/image.sh" operator $name)
cmp "$scratch/first.tar" "$scratch/second.tar" || fail "two builds of the operator's image differ"
rm -rf "$scratch/tree" "$scratch/cache"

# unpack <archive> <folder>
unpack() {
	"$crane" validate --tarball "$1"
	mkdir "$2"
	"$crane" export - "$2.tar" <"$1"
	tar -x -p -C "$2" -f "$2.tar"
}

unpack "$scratch/first.tar" "$scratch/operator"
files=$(tar --numeric-owner -tvf "$scratch/operator.tar" | awk '{ print $1, $2, $6 }')
[[ $files == $'drwxr-xr-x 0/0 licenses\n-rw-r--r-- 0/0 licenses/LICENSE\n-rwxr-xr-x 0/0 manager' ]] || fail "the operator's image has these files:"$'\n'"$files"
said=$(chroot --userspec=65532:65532 "$scratch/operator" /manager -version)
[[ $said == "$VERSION" ]] || fail "the operator's image has the version $said, not $VERSION"

# The catalog's image, with the probe that OLM gives to catalogs.
unpack "$root/bin/images/catalog.tar" "$scratch/catalog"
in=(chroot --userspec=1001:0 "$scratch/catalog")
"${in[@]}" /bin/opm serve /configs --cache-dir=/tmp/cache --port=50051 --pprof-addr= 2>"$scratch/log" &
server=$!
until "${in[@]}" /bin/grpc_health_probe -addr=127.0.0.1:50051 -rpc-timeout=5s 2>/dev/null; do
	kill -0 $server 2>/dev/null || fail "the catalog has ended: $(cat "$scratch/log")"
	sleep 0.1
done
echo "release-check: the images are as expected"
