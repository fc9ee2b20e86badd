#!/usr/bin/env bash
# usage: hack/images/image.sh operator|bundle|catalog|scorecard NAME:TAG
#
# Builds an image and writes the OCI archive that holds it, bin/images/KIND.tar. Containerd, docker and podman load the archive.
# Needs no container engine, no root and no network but for Go's modules: programs are compiled here, and laid out in a folder
# for each platform. The labels are those of the Dockerfile. In the environment, all optional:
#
#   PLATFORMS           such as linux/amd64,linux/arm64: several make an index of images; this machine's if not set
#   IMAGE_ARCHIVE       the archive to write
#   VERSION             the version in the labels and in the program, such as v0.1.0; "make" sets it
#   REVISION            the commit in the labels; git's if not set and if no tracked file differs from it
#   SOURCE_DATE_EPOCH   the time of the image and its files, in seconds since 1970; "make" sets it to the release's createdAt
#   BUNDLE              for "bundle": the folder to build it from; bundle if not set
#   CATALOG             for "catalog": the folder with the catalog; catalog if not set
#   OPM, HEALTH_PROBE   for "catalog": the programs for this machine; "make" sets them
set -euo pipefail
export LC_ALL=C
# Permissions in the images follow from those of the files, whatever the caller's mask.
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$here"

fail() {
	echo "hack/images/image.sh: $*" >&2
	exit 1
}

(($# == 2)) || fail "want operator, bundle, catalog or scorecard, and NAME:TAG"
kind=$1 name=$2
VERSION=${VERSION:-unknown}
work=$here/bin/images/work/$kind
rm -rf "$work"
mkdir -p "$work"
platforms=()
GOFLAGS=$(hack/goflags.sh)
export GOFLAGS
for platform in $(tr , ' ' <<<"${PLATFORMS:-linux/$(go env GOHOSTARCH)}"); do
	[[ $platform == linux/* && $platform != linux/*/* ]] || fail "PLATFORMS: want linux/ARCH, such as linux/amd64,linux/arm64, not '$platform'"
	platforms+=("${platform#linux/}")
done

# The commit, if what is built is what was committed.
revision() {
	local git=(git -c safe.directory='*')
	command -v git >/dev/null && "${git[@]}" rev-parse --git-dir >/dev/null 2>&1 || return 0
	[[ -z $("${git[@]}" status --porcelain --untracked-files=no) ]] || return 0
	"${git[@]}" rev-parse HEAD
}

# compile <module folder> <package> <architecture> <output> [<flag>...]
compile() {
	local folder=$1 package=$2 arch=$3 output=$4
	shift 4
	(cd "$folder" && CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOWORK=off \
		go build "$@" -o "$output" "$package")
}

# write <Dockerfile> [<flag>...]: the image from the folder of each platform, with the labels of the Dockerfile.
write() {
	local file=$1 label revision folders=()
	shift
	while IFS= read -r label; do
		label=${label//\"/}
		set -- "$@" -label "${label//\$VERSION/$VERSION}"
	done < <(sed -n 's/^LABEL //p' "$file")
	revision=${REVISION-$(revision)}
	[[ -z $revision ]] || set -- "$@" -label "org.opencontainers.image.revision=$revision"
	for arch in "${platforms[@]}"; do folders+=("linux/$arch=$work/$arch"); done
	local archive=${IMAGE_ARCHIVE:-$here/bin/images/$kind.tar}
	"$(hack/images/build.sh)/images" -name "$name" -archive "$archive" -created "${SOURCE_DATE_EPOCH:-0}" "$@" "${folders[@]}"
	echo "$archive"
}

operator() {
	for arch in "${platforms[@]}"; do
		install -D -m 0644 LICENSE "$work/$arch/licenses/LICENSE"
		compile . ./cmd/operator "$arch" "$work/$arch/manager" -ldflags "-s -w -X main.version=$VERSION"
	done
	write Dockerfile -user 65532:65532 -entrypoint /manager
}

bundle() {
	for arch in "${platforms[@]}"; do
		cp -r "${BUNDLE:-bundle}" "$work/$arch"
		chmod -R u=rwX,go=rX "$work/$arch"
	done
	write bundle.Dockerfile
}

catalog() {
	local arch=${platforms[0]} registry=github.com/operator-framework/operator-registry
	local root=$work/$arch
	((${#platforms[@]} == 1)) || fail "the catalog's image is for one platform at a time: set PLATFORMS to one"
	[[ -d ${CATALOG:-catalog}/verticalscaler-operator ]] || fail "there is no catalog: run 'make bundle' first"
	[[ -x ${OPM:-} && -x ${HEALTH_PROBE:-} ]] || fail "OPM and HEALTH_PROBE must be programs: run 'make release'"
	mkdir -p "$root/bin" "$root/tmp" "$root/configs"
	if [[ $arch == "$(go env GOHOSTARCH)" && $(go env GOHOSTOS) == linux ]]; then
		cp "$OPM" "$root/bin/opm"
		cp "$HEALTH_PROBE" "$root/bin/grpc_health_probe"
	else
		compile hack/tools/olm "$registry/cmd/opm" "$arch" "$root/bin/opm" \
			-tags containers_image_openpgp,json1 -ldflags "-s -w -X $registry/cmd/opm/version.opmVersion=${OPM##*-}"
		compile hack/tools github.com/grpc-ecosystem/grpc-health-probe "$arch" "$root/bin/grpc_health_probe" -ldflags '-s -w'
	fi
	# The cache carries a checksum of names, permissions and contents, so it is built from the files of the image.
	cp -r "${CATALOG:-catalog}/verticalscaler-operator" "$root/configs/"
	chmod -R u=rwX,go=rX "$root/configs"
	"$OPM" serve "$root/configs" --cache-dir="$root/tmp/cache" --cache-only --pprof-addr= \
		--termination-log="$work/log" 2>"$work/opm" || { cat "$work/opm" >&2; fail "opm cannot build the cache"; }
	write catalog.Dockerfile -user 1001:0 -port 50051 -entrypoint /bin/opm -cmd "serve /configs --cache-dir=/tmp/cache"
}

# The scorecard's own test: one static program.
scorecard() {
	for arch in "${platforms[@]}"; do
		compile . ./test/scorecard "$arch" "$work/$arch/scorecard-tests" -ldflags '-s -w'
	done
	write /dev/null -user 65532:65532 -entrypoint /scorecard-tests \
		-label org.opencontainers.image.title="VerticalScaler scorecard tests" -label org.opencontainers.image.version="$VERSION" \
		-label org.opencontainers.image.source=https://github.com/verticalscaler/verticalscaler-operator \
		-label org.opencontainers.image.licenses=Apache-2.0
}

case $kind in
operator | bundle | catalog | scorecard) "$kind" ;;
*) fail "there is no image $kind" ;;
esac
