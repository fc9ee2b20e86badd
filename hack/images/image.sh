#!/usr/bin/env bash
# usage: hack/images/image.sh operator|bundle|catalog|scorecard NAME:TAG
#        hack/images/image.sh compile
#
# Builds an image from its Dockerfile and prints the OCI archive that holds it, bin/images/KIND.tar. Containerd, docker and
# podman load the archive. Needs no container engine, no root and no network but for Go's modules: programs are compiled here.
# "compile" compiles the operator for its image and prints a line for each platform: the architecture and the program. In
# the environment, all optional:
#
#   PLATFORMS           such as linux/amd64,linux/arm64: several make a list of images; this machine's if not set
#   IMAGE_ARCHIVE       the archive to write
#   VERSION             the version in the labels and in the program, such as v0.1.0; that of config/manager if not set
#   REVISION            the commit in the labels; git's if not set and if no tracked file differs from it
#   SOURCE_DATE_EPOCH   the time of the image and its files, in seconds since 1970; the release's createdAt if not set
#   WORK                the folder for what is compiled; bin/images/work if not set
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

# The time of the release, which is in the base of the ClusterServiceVersion.
release_time() {
	local created
	created=$(sed -n 's/^ *createdAt: *//p' config/manifests/bases/*.clusterserviceversion.yaml | tr -d "\"'")
	[[ -n $created ]] || fail "the base of the ClusterServiceVersion has no createdAt: set SOURCE_DATE_EPOCH"
	# GNU's date, or that of BSD and macOS.
	date -u -d "$created" +%s 2>/dev/null || date -u -j -f %Y-%m-%dT%H:%M:%SZ "$created" +%s
}

# The commit, if what is built is what was committed.
revision() {
	local git=(git -c safe.directory='*')
	command -v git >/dev/null && "${git[@]}" rev-parse --git-dir >/dev/null 2>&1 || return 0
	[[ -z $("${git[@]}" status --porcelain --untracked-files=no) ]] || return 0
	"${git[@]}" rev-parse HEAD
}

# each_arch: the architectures of the platforms. There are only images for Linux.
each_arch() {
	local platform
	for platform in ${PLATFORMS//,/ }; do
		[[ $platform == linux/* && $platform != linux/*/* ]] ||
			fail "PLATFORMS: want linux/ARCH, such as linux/amd64,linux/arm64, not '$platform'"
		echo "${platform#linux/}"
	done
}

# compile <folder> <package> <architecture> <output> [<flag>...]
compile() {
	local folder=$1 package=$2 arch=$3 output=$4
	shift 4
	(cd "$folder" && CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOWORK=off GOFLAGS=-mod=readonly \
		go build -trimpath -buildvcs=false "$@" -o "$output" "$package")
}

# build <kind> <name> <Dockerfile> <context> [<flag>...]
build() {
	local kind=$1 name=$2 file=$3 context=$4 revision
	shift 4
	revision=${REVISION-$(revision)}
	[[ -z $revision ]] || set -- "$@" -label "org.opencontainers.image.revision=$revision"
	"$(hack/images/build.sh)/images" build -name "$name" -file "$file" -context "$context" -platform "$PLATFORMS" \
		-created "${SOURCE_DATE_EPOCH:-$(release_time)}" -arg "VERSION=$VERSION" \
		-archive "${IMAGE_ARCHIVE:-$here/bin/images/$kind.tar}" "$@"
}

programs() {
	local arch
	for arch in $(each_arch); do
		mkdir -p "$WORK/operator/out/$arch"
		compile . . "$arch" "$WORK/operator/out/$arch/manager" -ldflags "-s -w -X main.version=$VERSION"
		echo "$arch $WORK/operator/out/$arch/manager"
	done
}

operator() {
	programs >/dev/null
	build operator "$1" Dockerfile . -stage "build=$WORK/operator"
}

bundle() {
	# A copy, so that the permissions do not depend on how the sources were checked out.
	rm -rf "$WORK/bundle"
	mkdir -p "$WORK/bundle"
	cp -r "${BUNDLE:-bundle}" "$WORK/bundle/bundle"
	chmod -R u=rwX,go=rX "$WORK/bundle"
	build bundle "$1" bundle.Dockerfile "$WORK/bundle"
}

catalog() {
	local name=$1 arch folder registry=github.com/operator-framework/operator-registry
	[[ $PLATFORMS != *,* ]] || fail "the catalog's image is for one platform at a time: set PLATFORMS to one"
	[[ -d ${CATALOG:-catalog}/verticalscaler-operator ]] || fail "there is no catalog: run 'make catalog' first"
	[[ -x ${OPM:-} && -x ${HEALTH_PROBE:-} ]] || fail "OPM and HEALTH_PROBE must be programs: run 'make catalog-image'"
	arch=$(each_arch)
	folder=$WORK/catalog/$arch
	rm -rf "$folder"
	mkdir -p "$folder/bin" "$folder/tmp" "$folder/configs"
	if [[ $arch == "$(go env GOHOSTARCH)" && $(go env GOHOSTOS) == linux ]]; then
		cp "$OPM" "$folder/bin/opm"
		cp "$HEALTH_PROBE" "$folder/bin/grpc_health_probe"
	else
		compile hack/tools/opm "$registry/cmd/opm" "$arch" "$folder/bin/opm" \
			-tags containers_image_openpgp,json1 -ldflags "-s -w -X $registry/cmd/opm/version.opmVersion=${OPM##*-}"
		compile hack/tools/probe github.com/grpc-ecosystem/grpc-health-probe "$arch" "$folder/bin/grpc_health_probe" \
			-ldflags '-s -w'
	fi
	# The cache carries a checksum of names, permissions and contents, so it is built from the files of the image.
	cp -r "${CATALOG:-catalog}/verticalscaler-operator" "$folder/configs/"
	chmod -R u=rwX,go=rX "$folder/configs"
	"$OPM" serve "$folder/configs" --cache-dir="$folder/tmp/cache" --cache-only --pprof-addr= \
		--termination-log="$folder/log" 2>"$folder/opm" || { cat "$folder/opm" >&2; fail "opm cannot build the cache"; }
	build catalog "$name" catalog.Dockerfile . -stage "opm=$folder"
}

scorecard() {
	local arch
	for arch in $(each_arch); do
		mkdir -p "$WORK/scorecard/$arch"
		compile . ./test/scorecard/main "$arch" "$WORK/scorecard/$arch/scorecard-tests" -ldflags '-s -w'
	done
	build scorecard "$1" test/scorecard/Dockerfile "$WORK/scorecard"
}

case ${1:-} in
-h | -help | --help)
	sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "${BASH_SOURCE[0]}"
	exit
	;;
compile) [[ $# == 1 ]] || fail "'compile' takes no arguments" ;;
operator | bundle | catalog | scorecard) [[ $# == 2 ]] || fail "want: hack/images/image.sh $1 NAME:TAG" ;;
*) fail "want operator, bundle, catalog, scorecard or compile; --help explains them" ;;
esac

PLATFORMS=${PLATFORMS:-linux/$(go env GOHOSTARCH)}
each_arch >/dev/null
VERSION=${VERSION:-$(sed -n 's/^ *newTag: *//p' config/manager/kustomization.yaml)}
WORK=${WORK:-$here/bin/images/work}
if [[ $1 == compile ]]; then
	programs
else
	"$1" "$2"
fi
