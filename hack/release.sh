#!/usr/bin/env bash
# usage: hack/release.sh <version> <repository> <archive> <folder>
#
# Renders what a release publishes, with the operator's image by digest: <folder>/install.yaml, and <folder>/bundle with its
# Dockerfile beside it. The archive is that of the image, as "make image" writes it; its digest is that of the pushed image,
# too. Nothing in the tree is changed: the digest depends on the commit, so that it cannot be committed there. "make release"
# sets OPERATOR_SDK and KUSTOMIZE, and builds the rest.
set -euo pipefail
export LC_ALL=C

fail() { echo "hack/release.sh: $*" >&2; exit 1; }

(($# == 4)) || fail "usage: hack/release.sh <version> <repository> <archive> <folder>"
version=$1 repository=$2 archive=$3 folder=$4
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
kustomize=$(realpath "$KUSTOMIZE")

# The archive has one image, or one list of images, which is what a registry calls by the tag.
digests=$(tar -xOf "$archive" index.json | grep -oE '"digest": *"sha256:[0-9a-f]{64}"' | cut -d'"' -f4 || true)
[[ $(wc -l <<<"$digests") == 1 && -n $digests ]] || fail "$archive holds not one image, but: ${digests:-none}"
image=$repository@$digests

mkdir -p "$folder"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$root/config" "$scratch"
(cd "$scratch/config/manager" && "$kustomize" edit set image "manager=$image")
"$kustomize" build "$scratch/config/default" >"$folder/install.yaml"
"$root/hack/bundle.sh" "$version" "$image" "$folder/bundle"

# No image is left that a tag names.
if grep -rnF "$repository:" "$folder/install.yaml" "$folder/bundle/manifests"; then
	fail "these images are named by a tag"
fi
echo "$image"
