#!/usr/bin/env bash
# usage: hack/olm-node/build.sh
#
# Puts all that a node with OLM needs into bin/olm-node; "make olm-node" calls it with the programs that it packs:
#
#   images/*.tar   an image each, whose names are in images/*.names
#   crds.yaml      OLM's CRDs
#   olm.yaml       OLM itself, from the sources of its module: what a release installs, but for the server of package
#                  manifests and the public catalog, which neither runs here
#   operator-sdk   the program
#   registry       the program that serves the images
#   bundle/        the operator's bundle
#   rbac.yaml      what the scorecard's own tests may do
#
# The operator's images are those that users get, from hack/image.sh. OLM, opm and the scorecard's tests are published as
# images with the names used here; here they are built from the sources of the same versions.
set -euo pipefail
export LC_ALL=C
. "$(dirname "${BASH_SOURCE[0]}")/../node/lib.sh"
cd "$repo"
if asks_for_help "$@"; then
	usage
	exit 0
fi
for name in IMG OLM OLM_CATALOG OLM_CPB OLM_COPY_CONTENT OPM HEALTH_PROBE SCORECARD_TEST OPERATOR_SDK; do
	[ -n "${!name:-}" ] || fail "$name is not set: call it by \"make olm-node\""
done
packages=$(missing_olm_packages | tr '\n' ' ')
[ -z "$packages" ] || fail "programs are missing (packages: ${packages% }); hack/node/install.sh -olm installs them"
busybox=$(command -v busybox)

# The version is the end of a tool's file name.
olm_version=${OLM##*/olm-}
opm_version=${OPM##*/opm-}
scorecard_version=${SCORECARD_TEST##*/scorecard-test-}

mkimage=$(hack/node/build.sh)/mkimage
out=bin/olm-node
fresh=$(mktemp -d "bin/.olm-node-XXXXXX")
trap 'rm -rf "$fresh"' EXIT
mkdir "$fresh/images"

# own <kind> <name>: one of the operator's images.
own() {
	echo "$2" >"$fresh/images/$1.names"
	IMAGE_ARCHIVE=$fresh/images/$1.tar PLATFORMS='' hack/image.sh "$1" "$2" >"$fresh/log" 2>&1 || {
		cat "$fresh/log" >&2
		fail "cannot build the image $2"
	}
}
own operator "$IMG"
for kind in bundle catalog scorecard; do
	own $kind "${IMG%:*}-$kind:${IMG##*:}"
done
rm "$fresh/log"

# image <file> <name>...: an image from the description on standard input, which has no name yet.
image() {
	local file=$1
	shift
	printf '%s\n' "$@" >"$fresh/images/$file.names"
	sed "s|^{|[{\"name\": \"$1\",|; s|^}|}]|" | "$mkimage" -o "$fresh/images/$file.tar"
}

# OLM unpacks a bundle with cp and cpb of this image.
image olm "quay.io/operator-framework/olm:$olm_version" <<END
{
	"files": {
		"/bin/olm": "$OLM",
		"/bin/catalog": "$OLM_CATALOG",
		"/bin/cpb": "$OLM_CPB",
		"/bin/copy-content": "$OLM_COPY_CONTENT",
		"/bin/busybox": "$busybox"
	},
	"links": {"/bin/cp": "busybox"},
	"folders": ["/tmp"]
}
END
# An empty catalog, into which "run bundle" puts a bundle; the label says where it is.
image opm "quay.io/operator-framework/opm:$opm_version" <<END
{
	"entrypoint": ["/bin/opm"],
	"labels": {"operators.operatorframework.io.index.configs.v1": "/configs"},
	"files": {"/bin/opm": "$OPM", "/bin/busybox": "$busybox"},
	"links": {"/bin/sh": "busybox"},
	"folders": ["/configs", "/tmp"]
}
END
image scorecard-test "quay.io/operator-framework/scorecard-test:$scorecard_version" <<END
{
	"entrypoint": ["/bin/scorecard-test"],
	"files": {"/bin/scorecard-test": "$SCORECARD_TEST"}
}
END
# What operator-sdk takes other images for: to decompress a catalog, to unpack a bundle, to keep what a test has written.
# For the first it has a default, which "run bundle-upgrade" cannot be talked out of.
decompression=$("$OPERATOR_SDK" run bundle --help | sed -n 's/.*decompression.*(default "\(.*\)").*/\1/p')
[ -n "$decompression" ] || fail "operator-sdk does not say any more what its decompression image is"
image busybox verticalscaler.local/busybox:dev "$decompression" <<END
{
	"files": {"/bin/busybox": "$busybox"},
	"links": {
		"/bin/sh": "busybox",
		"/bin/cat": "busybox",
		"/bin/gzip": "busybox",
		"/bin/sleep": "busybox",
		"/bin/tar": "busybox"
	},
	"folders": ["/tmp"]
}
END

# The scorecard's own tests make pods of an image that every cluster can pull. It does nothing, and ends when it is told to.
pause=$(go run ./test/scorecard/main -h | sed -n 's/.*image.*pods.*(default "\(.*\)").*/\1/p')
[ -n "$pause" ] || fail "the scorecard's tests do not say any more what their pods' image is"
image pause "$pause" <<END
{
	"entrypoint": ["/stress", "pause"],
	"files": {"/stress": "$(dirname "$mkimage")/stress"}
}
END

# The release's objects, with our images' names and without the last two. Flags are written as the programs want them
# by now; workloads get a user, as in the project's chart.
lifecycle=github.com/operator-framework/operator-lifecycle-manager
module=$(cd hack/tools/olm && export GOWORK=off GOFLAGS= && go mod download $lifecycle && go list -m -f '{{.Dir}}' $lifecycle)
release=$module/deploy/upstream/quickstart/olm.yaml
for crd in "$module"/deploy/chart/crds/*.yaml; do
	echo "---"
	cat "$crd"
done >"$fresh/crds.yaml"
sed -E \
	-e "s|quay.io/operator-framework/olm@sha256:[0-9a-f]+|quay.io/operator-framework/olm:$olm_version|" \
	-e "s|^( *- )'?-(namespace\|util-image)'?$|\1--\2|" \
	-e "s|^( *- )-configmapServerImage=.*|\1--opmImage=quay.io/operator-framework/opm:$opm_version\n\1--set-workload-user-id=true|" \
	"$release" |
	awk -v RS='---\n' '/./ && !/name: packageserver\n/ && !/kind: CatalogSource\n/ { printf "---\n%s", $0 }' >"$fresh/olm.yaml"
[ "$(grep -c "olm:$olm_version" "$fresh/olm.yaml")" = 3 ] && [ "$(grep -c -e --opmImage= "$fresh/olm.yaml")" = 1 ] &&
	! grep -qE 'sha256:|:latest' "$fresh/olm.yaml" || fail "$release is not as expected: see the end of $0"

cp "$OPERATOR_SDK" "$fresh/operator-sdk"
cp "$(hack/olm/build.sh)/registry" "$fresh/registry"
cp -r bundle "$fresh/bundle"
cp config/scorecard/rbac.yaml "$fresh/rbac.yaml"

chmod 755 "$fresh"
rm -rf "$out"
mv -T "$fresh" "$out"
