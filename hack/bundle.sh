#!/usr/bin/env bash
# usage: hack/bundle.sh <version> <image>
#
# Generates bundle/ and bundle.Dockerfile, and brings the descriptors in the base of the ClusterServiceVersion up to
# date. Running it twice changes nothing the second time. "make bundle" sets OPERATOR_SDK and KUSTOMIZE.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$1
image=$2
base=config/manifests/bases/verticalscaler-operator.clusterserviceversion.yaml
generated=bundle/manifests/verticalscaler-operator.clusterserviceversion.yaml
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

quietly() { "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; return 1; }; }

# Descriptors come from the markers in api/. VerticalScalerCheckpoint has no status, which the SDK cannot read: it is not
# in PROJECT, and its descriptors are written in the base by hand.
quietly "$OPERATOR_SDK" generate kustomize manifests -q --interactive=false

# What the base repeats from elsewhere.
icon=$(base64 -w0 <config/manifests/icon.svg)
sed -i -E \
	-e "s|^( *- base64data:).*|\1 $icon|" \
	-e "s|^( *containerImage:).*|\1 $image|" "$base"

# From nothing, so that no file of an older version is left.
rm -rf bundle bundle.Dockerfile
"$KUSTOMIZE" build config/manifests >"$scratch/manifests.yaml"
# shellcheck disable=SC2002 # the SDK reads a pipe, not a file
cat "$scratch/manifests.yaml" | quietly "$OPERATOR_SDK" generate bundle -q --overwrite --version "$version" \
	--channels=candidate,fast,stable --default-channel=stable

# The SDK writes the time of its run. The base has the time of the release instead.
created=$(sed -n 's/^ *createdAt: *//p' "$base")
sed -i -E "s|^( *createdAt:).*|\1 $created|" "$generated"

# OpenShift 4.21 is the first with Kubernetes 1.34, see minKubeVersion.
cat >>bundle/metadata/annotations.yaml <<'END'

  # Annotations for OpenShift's catalog.
  com.redhat.openshift.versions: v4.21
END
sed -i '/^# Labels for testing/i\
# Labels for the catalog of OpenShift.\
LABEL com.redhat.openshift.versions=v4.21\
' bundle.Dockerfile
