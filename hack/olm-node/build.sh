#!/usr/bin/env bash
# usage: hack/olm-node/build.sh
#
# Puts everything that a node with OLM needs into bin/olm-node; "make test-node-olm" calls it with the programs to pack:
#
#   images/        an image in each folder, and their names in the file "names"
#   crds.yaml      OLM's CRDs
#   olm.yaml       OLM, from the sources of its module: the objects of a release without the server of package manifests and
#                  the public catalog
#   operator-sdk   the program
#   registry     the program that serves the images
#   bundle/        the operator's bundle
#   rbac.yaml      what the scorecard's own test may do
#
# The operator's images are those of a release, from hack/images/image.sh. OLM, opm and the scorecard's tests are published as
# images with the names used here; here they are built from the sources of the same versions.
set -euo pipefail
export LC_ALL=C
umask 022
. "$(dirname "${BASH_SOURCE[0]}")/../node/lib.sh"
cd "$repo"
if asks_for_help "$@"; then
	usage
	exit 0
fi
for name in IMG VERSION OLM OLM_CATALOG OLM_CPB OLM_COPY_CONTENT OPM HEALTH_PROBE SCORECARD_TEST OPERATOR_SDK; do
	[ -n "${!name:-}" ] || fail "$name is not set: call it by \"make test-node-olm\""
done
packages=$(missing_olm_packages | tr '\n' ' ')
[ -z "$packages" ] || fail "programs are missing (packages: ${packages% }); hack/node/install.sh -olm installs them"
busybox=$(command -v busybox)

# The version is the end of a tool's file name.
olm_version=${OLM##*/olm-}
opm_version=${OPM##*/opm-}
scorecard_version=${SCORECARD_TEST##*/scorecard-test-}

images=$(hack/images/build.sh)
out=bin/olm-node
fresh=$(mktemp -d "bin/.olm-node-XXXXXX")
trap 'rm -rf "$fresh"' EXIT
mkdir "$fresh/images"

# add <folder> <name>: the image in $fresh/image.tar.
add() {
	mkdir "$fresh/images/$1"
	tar -x -C "$fresh/images/$1" -f "$fresh/image.tar"
	echo "$1 $2" >>"$fresh/images/names"
	rm "$fresh/image.tar"
}

# own <kind> <name>: one of the operator's images.
own() {
	IMAGE_ARCHIVE=$fresh/image.tar PLATFORMS='' hack/images/image.sh "$1" "$2" >"$fresh/log" 2>&1 || {
		cat "$fresh/log" >&2
		fail "cannot build the image $2"
	}
	add "$1" "$2"
}
own operator "$IMG"
for kind in bundle catalog scorecard; do
	own $kind "${IMG%:*}-$kind:${IMG##*:}"
done
rm "$fresh/log"

# image <folder> <name> [<flag>...]: an image from $root, with further flags of hack/tools/images.
image() {
	local folder=$1 name=$2
	shift 2
	"$images/images" -name "$name" -archive "$fresh/image.tar" -user 65532:65532 "$@" "linux/$(go env GOARCH)=$root"
	rm -rf "$root"
	add "$folder" "$name"
}

# root <command>...: starts an image with a folder for temporary files and a busybox that is these commands.
root=$fresh/root
root() {
	local command
	mkdir -p "$root/bin"
	mkdir -m 1777 "$root/tmp"
	cp "$busybox" "$root/bin/busybox"
	for command in "$@"; do ln -s busybox "$root/bin/$command"; done
}

# OLM unpacks a bundle with cp and cpb of this image.
root cp
cp "$OLM" "$root/bin/olm"
cp "$OLM_CATALOG" "$root/bin/catalog"
cp "$OLM_CPB" "$root/bin/cpb"
cp "$OLM_COPY_CONTENT" "$root/bin/copy-content"
image olm "quay.io/operator-framework/olm:$olm_version"
# "run bundle" puts a bundle into this empty catalog. The label says where it is.
root sh
mkdir -m 1777 "$root/configs"
cp "$OPM" "$root/bin/opm"
image opm "quay.io/operator-framework/opm:$opm_version" -entrypoint /bin/opm -label operators.operatorframework.io.index.configs.v1=/configs
root
cp "$SCORECARD_TEST" "$root/bin/scorecard-test"
image scorecard-test "quay.io/operator-framework/scorecard-test:$scorecard_version" -entrypoint /bin/scorecard-test
# operator-sdk uses other images to decompress a catalog, to unpack a bundle, and to keep the output of a test. "run
# bundle-upgrade" has no flag for the first of them, so its default is built here.
decompression=$("$OPERATOR_SDK" run bundle --help | sed -n 's/.*decompression.*(default "\(.*\)").*/\1/p')
[ -n "$decompression" ] || fail "operator-sdk no longer prints the default of its decompression image"
root sh cat gzip sleep tar
image busybox verticalscaler.local/busybox:dev
echo "busybox $decompression" >>"$fresh/images/names"

# The release's objects, with our images' names and without the last two. The flags have the programs' present syntax. Workloads
# get a user, as in the project's chart.
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
cp "$images/crane" "$fresh/crane"
cp -r bundle "$fresh/bundle"
cp config/scorecard/rbac.yaml "$fresh/rbac.yaml"

chmod 755 "$fresh"
rm -rf "$out"
mv -T "$fresh" "$out"
