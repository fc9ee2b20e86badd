#!/usr/bin/env bash
# usage: hack/bundle.sh <version> <image> [<folder>]
#
# Generates the bundle of a version, whose manager runs from the image, into the folder, and <folder>.Dockerfile beside
# it, which is built in the folder's parent. Running it twice changes nothing the second time. "make bundle" sets
# OPERATOR_SDK and KUSTOMIZE.
#
# Without a folder it is the bundle of this tree: bundle/ and bundle.Dockerfile are written, and the base of the
# ClusterServiceVersion in config/manifests is brought up to date. With one, nothing else in the tree is touched.
set -euo pipefail
export LC_ALL=C

fail() { echo "hack/bundle.sh: $*" >&2; exit 1; }

(($# == 2 || $# == 3)) || fail "usage: hack/bundle.sh <version> <image> [<folder>]"
version=$1
image=$2
sdk=$(realpath "$OPERATOR_SDK")
kustomize=$(realpath "$KUSTOMIZE")
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
folder=$(realpath -m "${3:-$root/bundle}")
name=$(basename "$folder")

# The folder is replaced as a whole, so that no file of an older version is left.
[[ ! -e $folder || -f $folder/metadata/annotations.yaml || -z $(ls -A "$folder") ]] || fail "$folder is not a bundle"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
quietly() { "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; return 1; }; }

# Generating happens in a copy, which may be changed.
tree=$scratch/tree
mkdir "$tree"
cp -r "$root"/{api,config,go.mod,go.sum,PROJECT} "$tree"
cd "$tree"
base=config/manifests/bases/verticalscaler-operator.clusterserviceversion.yaml
generated=bundle/manifests/verticalscaler-operator.clusterserviceversion.yaml

# Descriptors come from the markers in api/. The SDK fails on a kind without a status: here it has one, without a field.
for kind in VerticalScalerCheckpoint NewPodSizes; do
	types=api/v1beta1/${kind,,}_types.go
	sed -i "s|^\tSpec ${kind}Spec .*|&\n\tStatus struct{} \`json:\"status,omitempty\"\`|" "$types"
	grep -q '^	Status struct{}' "$types" || fail "the field spec is not where it is looked for in $types"
done
quietly "$sdk" generate kustomize manifests -q --interactive=false

# What the base repeats from elsewhere. The update graph is the catalog's; the range only says that every version can
# be updated to this one.
icon=$(base64 -w0 <config/manifests/icon.svg)
# A cluster without a connection to our registry has the image in a mirror, where only its digest finds it. The operator's image
# is the only one of the bundle.
disconnected=false
if [[ $image == *@sha256:* ]]; then disconnected=true; fi
sed -i -E \
	-e "s|^( *- base64data:).*|\1 $icon|" \
	-e "s|^( *features.operators.openshift.io/disconnected:).*|\1 \"$disconnected\"|" \
	-e "s|^( *containerImage:).*|\1 $image|" \
	-e "s|^( *olm.skipRange:).*|\1 <$version|" "$base"
(cd config/manager && quietly "$kustomize" edit set image "manager=$image")
# The images of the scorecard's own tests are released with the operator. Kustomize knows no images in their kind.
sed -i -E "s|^( *- image: .*-operator-scorecard):.*|\1:v$version|" config/scorecard/config.yaml

"$kustomize" build config/manifests >"$scratch/manifests.yaml"
# shellcheck disable=SC2002 # the SDK reads a pipe, not a file
cat "$scratch/manifests.yaml" | quietly "$sdk" generate bundle -q --overwrite --version "$version" \
	--channels=candidate,fast,stable --default-channel=stable

# The SDK writes the time of its run. The base has the time of the release instead.
created=$(sed -n 's/^ *createdAt: *//p' "$base")
sed -i -E "s|^( *createdAt:).*|\1 $created|" "$generated"

# OpenShift 4.21 is the first with Kubernetes 1.34, see minKubeVersion.
cat >>bundle/metadata/annotations.yaml <<'END'

  # Annotations for OpenShift's catalog.
  com.redhat.openshift.versions: v4.21
END
sed -i -e '/^# Labels for testing/i\
# Labels for the catalog of OpenShift.\
LABEL com.redhat.openshift.versions=v4.21\
' -e "s|^COPY bundle/|COPY $name/|" bundle.Dockerfile

if [[ $# == 2 ]]; then cp "$base" "$root/$base"; fi
mkdir -p "$(dirname "$folder")"
rm -rf "$folder"
cp -r bundle "$folder"
cp bundle.Dockerfile "$folder.Dockerfile"
