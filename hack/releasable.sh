#!/usr/bin/env bash
# usage: hack/releasable.sh <version>
#
# Fails, and says what to do, if this tree cannot be released as that version. "make release" calls it.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "make release: $*" >&2; exit 1; }
git=(git -c safe.directory='*')

(($# == 1)) || { echo "usage: hack/releasable.sh <version>" >&2; exit 2; }
version=$1
[[ $version =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]] || fail "VERSION is '$version', want three numbers without v, such as 0.2.0"

current=$(sed -n 's/^ *newTag: *v//p' config/manager/kustomization.yaml)
[[ $version == "$current" ]] || fail "this tree is version $current. Run 'make version VERSION=$version' and commit, or release VERSION=$current"
[[ ! -e catalog/bundles/v$version ]] || fail "$version is an older version: catalog/bundles/v$version exists"
grep -qE "^## \[${version//./\\.}\] - 2[0-9]{3}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
	fail "CHANGELOG.md has no entry '## [$version] - DATE'. 'make version VERSION=$version' makes it of the entries under Unreleased"
grep -qE "operator-bundle:v${version//./\\.}$" catalog/verticalscaler-operator.yaml ||
	fail "catalog/verticalscaler-operator.yaml has no channel with $version. 'make version VERSION=$version' adds it to candidate"

# An archive of the sources has no commit, so that the image has no label with it.
"${git[@]}" rev-parse --git-dir >/dev/null 2>&1 || exit 0
if tagged=$("${git[@]}" rev-parse -q --verify "v$version^{commit}"); then
	[[ $tagged == "$("${git[@]}" rev-parse HEAD)" ]] || fail "$version has been released: the tag v$version is another commit. Check it out, or choose a new version"
fi
changed=$("${git[@]}" status --porcelain --untracked-files=no)
[[ -z $changed ]] || fail "these files differ from the commit, which the image names: commit them first"$'\n'"$changed"
