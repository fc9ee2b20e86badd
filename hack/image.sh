#!/usr/bin/env bash
# usage: hack/image.sh tool
#        hack/image.sh compile
#        hack/image.sh operator|bundle|catalog|scorecard NAME:TAG
#
# "tool" prints the container tool that the others use: the first of docker, podman and buildah that works, which a client
# without an engine does not. "compile" compiles the operator for its image and prints a line for each platform: the
# architecture and the program. The others build an image in that tool's store, without a network: what the image needs is
# compiled here. In the environment, all optional:
#
#   CONTAINER_TOOL      docker, podman or buildah, or a path to one of them
#   PLATFORMS           such as linux/amd64,linux/arm64: several make a list of images; this machine's if not set
#   IMAGE_ARCHIVE       a file: the image is also written there, as an OCI archive
#   VERSION             the version in the labels and in the program, such as v0.1.0; that of config/manager if not set
#   REVISION            the commit in the labels; git's if not set and if no tracked file differs from it
#   SOURCE_DATE_EPOCH   the time of the image and its files, in seconds since 1970; the release's createdAt if not set
#   WORK                the folder for what is compiled; bin/images/work if not set
#   OPM, HEALTH_PROBE   for "catalog": the programs for this machine; "make" sets them
set -euo pipefail
export LC_ALL=C
# Other tools may have to read what is made here, whatever the caller's mask.
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$here"

fail() {
	echo "hack/image.sh: $*" >&2
	exit 1
}

# works <tool>: whether the tool is there and can build. If not, the reason is added to $why.
why=
works() {
	local message
	if ! command -v "$1" >/dev/null; then
		why+="  $1 is not installed"$'\n'
		return 1
	fi
	message=$("$1" info 2>&1 >/dev/null) && return
	[[ ${1##*/} != buildah ]] || ! STORAGE_DRIVER=vfs "$1" info >/dev/null 2>&1 || return 0
	why+="  $1: $(tail -n 1 <<<"${message:-'info' fails}")"$'\n'
	return 1
}

find_tool() {
	local candidate
	if [[ -n ${CONTAINER_TOOL:-} ]]; then
		works "$CONTAINER_TOOL" || fail "CONTAINER_TOOL=$CONTAINER_TOOL does not work:"$'\n'"$why"
		echo "$CONTAINER_TOOL"
		return
	fi
	for candidate in docker podman buildah; do
		if works "$candidate"; then
			echo "$candidate"
			return
		fi
	done
	fail "no container tool works. Install one of them (Debian: apt-get install buildah) or start its engine:"$'\n'"$why"
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

# build <name> <Dockerfile> <context> [<flag>...]: builds the image in the tool's store, and the archive.
build() {
	local name=$1 file=$2 context=$3 label=() flags=()
	shift 3
	[[ -z $REVISION ]] || label=(--label "org.opencontainers.image.revision=$REVISION")
	flags=(--file "$file" --platform "$PLATFORMS" "${label[@]}" "$@")
	case ${tool##*/} in
	docker)
		# Attestations hold the time of the build.
		BUILDX_NO_DEFAULT_ATTESTATIONS=1 DOCKER_BUILDKIT=1 \
			"$tool" build --build-arg "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH" "${flags[@]}" --tag "$name" "$context"
		;;
	podman | buildah)
		flags+=(--timestamp "$SOURCE_DATE_EPOCH" --identity-label=false --format oci)
		# Without privileges of its own, as root in a container: nothing is run in the image but copies into it.
		if [[ ${tool##*/} == buildah ]]; then
			flags+=(--isolation chroot)
			# The plainest store, where this user may not mount what the default one is made of.
			"$tool" info >/dev/null 2>&1 || export STORAGE_DRIVER=vfs
		fi
		# A list with that name would be added to, and an image stand in its way.
		"$tool" manifest rm "$name" >/dev/null 2>&1 || "$tool" rmi "$name" >/dev/null 2>&1 || true
		if [[ $PLATFORMS == *,* ]]; then
			"$tool" build "${flags[@]}" --manifest "$name" "$context"
		else
			"$tool" build "${flags[@]}" --tag "$name" "$context"
		fi
		;;
	*) fail "CONTAINER_TOOL=$tool: want docker, podman or buildah" ;;
	esac
	[[ -z ${IMAGE_ARCHIVE:-} ]] || archive "$name"
}

# archive <name>: writes the image to IMAGE_ARCHIVE, under its full name, so that containerd finds it by that.
archive() {
	local name=$1 layout=$scratch/layout
	mkdir -p "$(dirname "$IMAGE_ARCHIVE")"
	if [[ ${tool##*/} == docker ]]; then
		"$tool" save --output "$IMAGE_ARCHIVE" "$name"
	elif [[ $PLATFORMS == *,* ]]; then
		"$tool" manifest push --quiet --all "$name" "oci:$layout:image"
	else
		"$tool" push --quiet "$name" "oci:$layout:image"
	fi
	if [[ ${tool##*/} != docker ]]; then
		"$(hack/olm/build.sh)/registry" pack -name "$name" -layout "$layout" -archive "$IMAGE_ARCHIVE"
	fi
	echo "$IMAGE_ARCHIVE"
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
	local name=$1
	programs >/dev/null
	build "$name" Dockerfile . --build-arg "VERSION=$VERSION" --build-context "build=$WORK/operator"
}

bundle() {
	# A copy, so that the permissions do not depend on how the sources were checked out.
	rm -rf "$WORK/bundle"
	mkdir -p "$WORK/bundle"
	cp -r bundle "$WORK/bundle/"
	chmod -R u=rwX,go=rX "$WORK/bundle"
	build "$1" bundle.Dockerfile "$WORK/bundle"
}

catalog() {
	local name=$1 arch folder registry=github.com/operator-framework/operator-registry
	[[ $PLATFORMS != *,* ]] || fail "the catalog's image is for one platform at a time: set PLATFORMS to one"
	[[ -d catalog/verticalscaler-operator ]] || fail "there is no catalog: run 'make catalog' first"
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
	# The cache carries a checksum of names, permissions and contents, so it is made from what the image will hold.
	cp -r catalog/verticalscaler-operator "$folder/configs/"
	chmod -R u=rwX,go=rX "$folder/configs"
	"$OPM" serve "$folder/configs" --cache-dir="$folder/tmp/cache" --cache-only --pprof-addr= \
		--termination-log="$scratch/log" 2>"$scratch/opm" || { cat "$scratch/opm" >&2; fail "opm cannot make the cache"; }
	build "$name" catalog.Dockerfile . --build-arg "VERSION=$VERSION" --build-context "opm=$folder"
}

scorecard() {
	local arch
	for arch in $(each_arch); do
		mkdir -p "$WORK/scorecard/$arch"
		compile . ./test/scorecard/main "$arch" "$WORK/scorecard/$arch/scorecard-tests" -ldflags '-s -w'
	done
	build "$1" test/scorecard/Dockerfile "$WORK/scorecard" --build-arg "VERSION=$VERSION"
}

case ${1:-} in
tool)
	[[ $# == 1 ]] || fail "'tool' takes no arguments"
	find_tool
	exit
	;;
-h | -help | --help)
	sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "${BASH_SOURCE[0]}"
	exit
	;;
compile) [[ $# == 1 ]] || fail "'compile' takes no arguments" ;;
operator | bundle | catalog | scorecard) [[ $# == 2 ]] || fail "want: hack/image.sh $1 NAME:TAG" ;;
*) fail "want tool, compile, operator, bundle, catalog or scorecard; --help explains them" ;;
esac

PLATFORMS=${PLATFORMS:-linux/$(go env GOHOSTARCH)}
each_arch >/dev/null
VERSION=${VERSION:-$(sed -n 's/^ *newTag: *//p' config/manager/kustomization.yaml)}
WORK=${WORK:-$here/bin/images/work}
if [[ $1 == compile ]]; then
	programs
	exit
fi
tool=$(find_tool)
REVISION=${REVISION-$(revision)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(release_time)}
export SOURCE_DATE_EPOCH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$1" "$2"
