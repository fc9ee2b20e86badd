#!/usr/bin/env bash
# usage: hack/images/catalog.sh TEMPLATE FOLDER NAME:TAG=BUNDLE...
#
# Renders a file-based catalog from a semver template, without a network: each bundle that the template names is given as
# a folder, and a registry of its own replaces the public one. The folder gets
#
#   PACKAGE/catalog.yaml   the catalog: what "opm serve" reads, and what OperatorHub keeps
#   basic.yaml             a template of the basic kind, from which opm alone renders the same bytes, as OperatorHub's
#                          checks do; the semver template has no channels without a version in their names
#
# Running it twice changes nothing the second time. "make bundle" sets OPM.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
	echo "hack/images/catalog.sh: $*" >&2
	exit 1
}

(($# >= 2)) || fail "want TEMPLATE FOLDER NAME:TAG=BUNDLE..."
template=$1
folder=$2
shift 2
[[ -x ${OPM:-} ]] || fail "OPM must be opm: run 'make bundle'"
[[ -f $template ]] || fail "there is no template $template"
OPM=$(realpath "$OPM")

programs=$("$here/build.sh")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The registry ends with this script, because the pipe to the standard input of "cat" closes then.
: >"$scratch/registry" # it is read before it is written
coproc {
	"$programs/crane" registry serve --address 127.0.0.1:0 2>"$scratch/registry" &
	cat
	kill $!
}
until port=$(sed -n 's/.*serving on port //p' "$scratch/registry") && [[ -n $port ]]; do
	kill -0 "$COPROC_PID" || fail "cannot serve the bundles: $(cat "$scratch/registry")"
	sleep 0.1
done
address=127.0.0.1:$port

hosts=()
for bundle in "$@"; do
	name=${bundle%%=*}
	hosts+=("${name%%/*}")
	IMAGE_ARCHIVE=$scratch/bundle.tar BUNDLE=${bundle#*=} PLATFORMS='' "$here/image.sh" bundle "$name" >/dev/null
	"$here/push.sh" "$scratch/bundle.tar" "$address/${name#*/}" >"$scratch/push" 2>&1 || fail "$(cat "$scratch/push")"
done

# Images keep their public names, and are asked for at our registry instead.
for host in $(printf '%s\n' "${hosts[@]}" | sort -u); do
	printf '[[registry]]\nprefix = "%s"\nlocation = "%s"\n' "$host" "$address"
done >"$scratch/registries.conf"
# The machine may have no policy; and what is pulled here is looked at, not run.
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$scratch/policy.json"
export CONTAINERS_REGISTRIES_CONF=$scratch/registries.conf
export CONTAINERS_POLICY_JSON=$scratch/policy.json
export TMPDIR=$scratch

# Bundles are described by olm.csv.metadata: OpenShift 4.17 and newer refuse all their manifests, olm.bundle.object.
render() { "$OPM" alpha render-template "$1" -o yaml --use-http --migrate-level=bundle-object-to-csv-metadata "$2"; }

# The semver template has a channel for each major version, such as stable-v0. Users subscribe to "stable".
mkdir "$scratch/plain"
render semver "$template" | sed -E 's/^(defaultChannel|name): (candidate|fast|stable)-v0$/\1: \2/' >"$scratch/plain/catalog.yaml"
! grep -E '^(defaultChannel|name): .*-v[0-9]+$' "$scratch/plain/catalog.yaml" ||
	fail "the catalog has a channel of another major version: decide which of its versions replaces the last one before (docs/adr/0066)"
package=verticalscaler-operator
# Once more through opm, for its order and layout.
mkdir -p "$scratch/catalog/$package"
"$OPM" render "$scratch/plain" -o yaml >"$scratch/catalog/$package/catalog.yaml"
"$OPM" validate "$scratch/catalog"

"$OPM" alpha convert-template basic -o yaml "$scratch/catalog/$package/catalog.yaml" >"$scratch/basic.yaml"
render basic "$scratch/basic.yaml" >"$scratch/again.yaml"
cmp "$scratch/again.yaml" "$scratch/catalog/$package/catalog.yaml" ||
	fail "the basic template does not render the same catalog"

mkdir -p "$folder/$package"
cp "$scratch/basic.yaml" "$folder/basic.yaml"
cp "$scratch/catalog/$package/catalog.yaml" "$folder/$package/catalog.yaml"
