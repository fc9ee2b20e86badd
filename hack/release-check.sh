#!/usr/bin/env bash
# usage: hack/release-check.sh
#
# A dry run of a release: in a copy of this tree, the version of this tree is tagged, and docs/release.md is followed for the next
# one. Then what a maintainer would push is there, the hubs have nothing to find, the images run as their users, and the operator is
# installed from the folder of the release. "make release-check" calls it. The plugin is built for this machine only. Needs root on
# Linux, for chroot.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
unset MAKEFLAGS MAKELEVEL SOURCE_DATE_EPOCH

fail() { echo "release-check: $*" >&2; exit 1; }

scratch=$(mktemp -d)
server=
trap 'if [[ -n $server ]]; then kill "$server"; fi; rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
tree=$scratch/tree
mkdir -p "$tree/bin"
# Generated files and what was built stay here, so that only what is committed is released.
if git -c safe.directory='*' rev-parse --git-dir >/dev/null 2>&1; then
	git -c safe.directory='*' ls-files -z --cached --others --exclude-standard
else
	find . -path ./.git -prune -o -path ./bin -prune -o -type f -printf '%P\0'
fi | while IFS= read -r -d '' file; do
	if [[ -e $file ]]; then printf '%s\0' "$file"; fi
done | xargs -0 cp --parents -P -t "$tree"
mkdir -p bin/tools bin/cluster
ln -s "$root/bin/tools" "$root/bin/cluster" "$tree/bin/"

cd "$tree"
commit() {
	git add -A
	git -c user.name=release-check -c user.email=release-check@example.com commit -q -s -m "$1"
}
git init -q .
commit "this tree"
current=$(sed -n 's/^ *newTag: *v//p' config/manager/kustomization.yaml)
git tag "v$current"
IFS=. read -r major minor _ <<<"$current"
next=$major.$((minor + 1)).0
# Right after a release, there may be no entry yet.
sed -i '0,/^## \[Unreleased\]/s//&\n\n* A dry run./' CHANGELOG.md

echo "--- make version VERSION=$next"
make -s version VERSION="$next"
[[ -e catalog/bundles/v$current/manifests ]] || fail "the bundle of $current has not been kept"
grep -q "verticalscaler-installer.v$next$" dist/olm-v1.yaml || fail "dist/olm-v1.yaml is not that of $next"
# The version goes through all channels, so that both hubs get it.
repository=$(sed -n 's/^ *newName: *//p' config/manager/kustomization.yaml)
sed -i -E "/^stable:/ s|^|    - image: $repository-bundle:v$next\n|" catalog/verticalscaler-operator.yaml
echo "    - image: $repository-bundle:v$next" >>catalog/verticalscaler-operator.yaml
make -s bundle
commit "release: v$next"
git tag "v$next"

echo "--- make release VERSION=$next"
PLUGIN_PLATFORMS=$(go env GOHOSTOS)/$(go env GOHOSTARCH) make -s release VERSION="$next"
[[ -z $(git status --porcelain) ]] || fail "the release has changed the tree: $(git status --porcelain)"

missing=
plugin=kubectl-vscaler_$(go env GOHOSTOS)_$(go env GOHOSTARCH)
for file in operator.tar bundle.tar scorecard.tar catalog.tar install.yaml vscaler.yaml SHA256SUMS bundle/metadata/annotations.yaml \
	catalog/basic.yaml "verticalscaler-operator_linux_$(go env GOHOSTARCH).cdx.json" "$plugin.tar.gz" "$plugin.cdx.json" \
	hub/community-operators{,-prod}/operators/verticalscaler-operator/{ci.yaml,"$next"/manifests/verticalscaler-operator.clusterserviceversion.yaml}; do
	[[ -s bin/release/$file ]] || missing+=" $file"
done
[[ -z $missing ]] || fail "bin/release has no$missing"
release=bin/release/hub/community-operators-prod/operators/verticalscaler-operator/$next/release-config.yaml
grep -q "replaces: verticalscaler-operator.v$current\$" "$release" || fail "$next does not replace $current: $(cat "$release")"
digest=$(tar -xOf bin/release/operator.tar index.json | grep -oE 'sha256:[0-9a-f]{64}')
for file in install.yaml bundle/manifests/verticalscaler-operator.clusterserviceversion.yaml; do
	grep -q "image: $repository@$digest\$" "bin/release/$file" || fail "$file does not name the image in operator.tar by its digest"
done
grep -q 'features.operators.openshift.io/disconnected: "true"' bin/release/bundle/manifests/*.clusterserviceversion.yaml || fail "the bundle is not for mirrors"
grep -rq "operator-bundle:v$current" bin/release/catalog || fail "the catalog has no $current"
(cd bin/release && sha256sum --quiet --check SHA256SUMS) || fail "a checksum is wrong"
go -C hack/tools tool validate-krew-manifest -manifest "$PWD/bin/release/vscaler.yaml" -skip-install || fail "krew refuses the manifest"

# The second build is of a copy in another folder, with another mask, another time zone and an empty build cache.
echo "--- the image, again"
copy=$scratch/copy
mkdir "$copy"
cp -r LICENSE Dockerfile go.mod go.sum api controllers internal "$copy"
cp -r --parents cmd/operator hack/goflags.sh hack/images hack/tools/go.mod hack/tools/go.sum hack/tools/images "$copy"
chmod -R go= "$copy"
REVISION=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(date -u -d "$(sed -n 's/^ *createdAt: *"\(.*\)"/\1/p' config/manifests/bases/*.clusterserviceversion.yaml)" +%s)
(umask 077 && export REVISION SOURCE_DATE_EPOCH VERSION=v$next IMAGE_ARCHIVE=$scratch/again.tar TZ=Pacific/Chatham GOCACHE=$scratch/cache &&
	"$copy/hack/images/image.sh" operator "$repository:v$next")
cmp bin/release/operator.tar "$scratch/again.tar" || fail "two builds of the operator's image differ"
rm -rf "$copy" "$scratch/cache" "$scratch/again.tar"

crane=$(hack/images/build.sh)/crane
# unpack <image>: its files, in a folder.
unpack() {
	"$crane" validate --tarball "bin/release/$1.tar"
	mkdir "$scratch/$1"
	"$crane" export - "$scratch/$1.tar" <"bin/release/$1.tar"
	tar -x -p -C "$scratch/$1" -f "$scratch/$1.tar"
}
unpack operator
files=$(tar --numeric-owner -tvf "$scratch/operator.tar" | awk '{ print $1, $2, $6 }')
[[ $files == $'drwxr-xr-x 0/0 licenses\n-rw-r--r-- 0/0 licenses/LICENSE\n-rwxr-xr-x 0/0 manager' ]] || fail "the operator's image has these files:"$'\n'"$files"
said=$(chroot --userspec=65532:65532 "$scratch/operator" /manager -version)
[[ $said == "v$next" ]] || fail "the operator's image has the version $said, not v$next"
# The catalog's image, with the probe that OLM gives to catalogs.
unpack catalog
in=(chroot --userspec=1001:0 "$scratch/catalog")
"${in[@]}" /bin/opm serve /configs --cache-dir=/tmp/cache --port=50051 --pprof-addr= 2>"$scratch/log" &
server=$!
until "${in[@]}" /bin/grpc_health_probe -addr=127.0.0.1:50051 -rpc-timeout=5s 2>/dev/null; do
	kill -0 $server 2>/dev/null || fail "the catalog has ended: $(cat "$scratch/log")"
	sleep 0.1
done

echo "--- install from bin/release"
RELEASE=bin/release hack/demo/demo.sh -once
echo "release-check: $next after $current is complete, and works"
