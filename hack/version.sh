#!/usr/bin/env bash
# usage: hack/version.sh <version>
#
# Makes this tree the given version, to be reviewed and committed: the version in config/manager and of the admission policies, the time of the release, the
# entry in CHANGELOG.md, the channel candidate, and the version of the API that modules require. The bundle of a released version
# before it is kept in catalog/bundles. "make version" calls it, and then generates the other files.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "make version: $*" >&2; exit 1; }
git=(git -c safe.directory='*')

(($# == 1)) || { echo "usage: hack/version.sh <version>" >&2; exit 2; }
version=$1
[[ $version =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]] || fail "VERSION is '$version', want three numbers without v, such as 0.2.0"
kustomization=config/manager/kustomization.yaml
template=catalog/verticalscaler-operator.yaml
base=config/manifests/bases/verticalscaler-operator.clusterserviceversion.yaml
current=$(sed -n 's/^ *newTag: *v//p' "$kustomization")
image=$(sed -n 's/^ *newName: *//p' "$kustomization")-bundle

released() { "${git[@]}" rev-parse -q --verify "v$1^{commit}" >/dev/null 2>&1; }
if released "$version"; then fail "$version has been released: the tag v$version exists"; fi
grep -qE "^## \[${version//./\\.}\]" CHANGELOG.md && fail "CHANGELOG.md has an entry for $version already"
[[ -n $(sed -n '/^## \[Unreleased\]/,/^## \[[0-9]/p' CHANGELOG.md | grep '^\*' || true) ]] ||
	fail "CHANGELOG.md has no entry under Unreleased: there is nothing to release"

# A version that was never released gives its place to this one.
if [[ $version != "$current" ]]; then
	if released "$current"; then
		[[ $(printf '%s\n' "$current" "$version" | sort -V | tail -n 1) == "$version" ]] || fail "$version is older than $current"
		rm -rf "catalog/bundles/v$current"
		mkdir -p "catalog/bundles/v$current"
		"${git[@]}" archive "v$current" bundle | tar -x -C "catalog/bundles/v$current" --strip-components=1
	else
		sed -i "s|$image:v$current\$|$image:v$version|" "$template"
	fi
fi

sed -i "s/newTag: v$current\$/newTag: v$version/" "$kustomization"
sed -i -E "s/(policies |version: )v${current//./\\.}([)}])/\1v$version\2/" config/components/admission-policies/*.yaml
# The API is a module of its own, with the version of the operator.
api=github.com/verticalscaler/verticalscaler-operator/api
grep -rlE --include=go.mod --exclude-dir=bin "$api v" . | xargs -r sed -i -E "s|($api) v[^ ]+|\1 v$version|"
sed -i -E "s|^( *createdAt:).*|\1 \"$(date -u +%Y-%m-%dT00:00:00Z)\"|" "$base"
grep -q "$image:v$version\$" "$template" ||
	sed -i -E "/^candidate:/,/^fast:/ s|^fast:|    - image: $image:v$version\nfast:|" "$template"
repository=https://github.com/verticalscaler/verticalscaler-operator
sed -i -E -e "s|^## \[Unreleased\]|&\n\n## [$version] - $(date -u +%Y-%m-%d)|" \
	-e "s|^\[Unreleased\]: .*|[Unreleased]: $repository/compare/v$version...main\n[$version]: $repository/releases/tag/v$version|" CHANGELOG.md
