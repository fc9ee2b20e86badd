#!/usr/bin/env bash
# usage: hack/release-check.sh
#
# A dry run of a release: in a copy of this tree, the version of this tree is tagged, and docs/release.md is followed for the next
# one. Then what a maintainer would push is there, and the hubs have nothing to find. "make release-check" calls it. The plugin is
# built for this machine only.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
unset MAKEFLAGS MAKELEVEL SOURCE_DATE_EPOCH

fail() { echo "release-check: $*" >&2; exit 1; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
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
mkdir -p bin/tools
ln -s "$root/bin/tools" "$tree/bin/tools"

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
image=$(sed -n 's/^ *newName: *//p' config/manager/kustomization.yaml)-bundle:v$next
sed -i -E "/^stable:/ s|^|    - image: $image\n|" catalog/verticalscaler-operator.yaml
echo "    - image: $image" >>catalog/verticalscaler-operator.yaml
make -s catalog
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
grep -rq 'features.operators.openshift.io/disconnected: "true"' bin/release/bundle/manifests || fail "the bundle has no digests"
grep -rq "operator-bundle:v$current" bin/release/catalog || fail "the catalog has no $current"
(cd bin/release && sha256sum --quiet --check SHA256SUMS) || fail "a checksum is wrong"
go -C hack/tools tool validate-krew-manifest -manifest "$PWD/bin/release/vscaler.yaml" -skip-install || fail "krew refuses the manifest"
echo "release-check: $next after $current is complete"
