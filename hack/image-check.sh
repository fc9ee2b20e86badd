#!/usr/bin/env bash
# usage: hack/image-check.sh
#
# Shows that the operator's image is reproducible and holds what it should: builds it twice, the second time from a copy of
# the sources in another folder, with another mask and another time zone, and with our own packages compiled again;
# compares all digests; looks at every file and setting; and runs the program from the unpacked image, as the user of the
# image, on a read-only root. Needs root on Linux, for the last step.
#
# With COLD=1 the second build has an empty build cache: all dependencies are compiled again too, which takes minutes.
# "make image-check" sets VERSION; hack/image.sh explains the rest of the environment.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() {
	echo "hack/image-check.sh: $*" >&2
	exit 1
}
quietly() { "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; return 1; }; }

[[ $(uname -s) == Linux ]] && ((EUID == 0)) || fail "needs root on Linux, to run the program as the image's user"
: "${VERSION:?the version that the program must print}"
scratch=$(mktemp -d)
name=localhost/verticalscaler-operator-check:$$
CONTAINER_TOOL=$(hack/image.sh tool)
export CONTAINER_TOOL VERSION
trap '"$CONTAINER_TOOL" rmi "$name" >/dev/null 2>&1 || true; rm -rf "$scratch"' EXIT

# The files in Go's build cache with what has been compiled of our own packages. They are named by a hash of all that goes
# into a package, the start of which is the first half of the package's build ID.
compiled() {
	local id hash cache
	cache=$(go env GOCACHE)
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOWORK=off GOFLAGS=-mod=readonly go list -export -deps -trimpath -buildvcs=false \
		-f '{{with .Module}}{{if .Main}}{{$.BuildID}}{{end}}{{end}}' . >"$scratch/ids"
	while read -r id; do
		hash=$(tr '_-' '/+' <<<"${id%%/*}" | base64 -d | od -An -v -tx1 | tr -d ' \n')
		printf '%s\n' "$cache/${hash:0:2}/$hash"*-a
	done <"$scratch/ids"
}

arch=$(go env GOHOSTARCH)
# The commit is a label. The copy has no history, and what is built is the same anyway.
export PLATFORMS=linux/$arch REVISION=
registry=$(hack/olm/build.sh)/registry

echo "First build, here"
WORK=$scratch/first IMAGE_ARCHIVE=$scratch/first.tar quietly hack/image.sh operator "$name"

if [[ -n ${COLD:-} ]]; then
	echo "Second build, elsewhere and from nothing"
	: >"$scratch/compiled"
	cold=$scratch/cache
else
	compiled >"$scratch/compiled"
	(($(wc -l <"$scratch/compiled") > 10)) || fail "what has been compiled of our packages is not in Go's build cache"
	echo "Second build, elsewhere, with $(wc -l <"$scratch/compiled") packages of ours compiled again"
	xargs -d '\n' rm -- <"$scratch/compiled"
	cold=$(go env GOCACHE)
fi
other=$scratch/an/other/folder
mkdir -p "$other/config/manager" "$other/config/manifests/bases" "$other/hack"
cp -r LICENSE Dockerfile .dockerignore go.mod go.sum main.go api controllers internal "$other"
cp config/manager/kustomization.yaml "$other/config/manager/"
cp config/manifests/bases/*.yaml "$other/config/manifests/bases/"
cp -r hack/image.sh hack/olm "$other/hack/"
find "$other" -exec touch -d '2001-02-03 04:05:06 UTC' {} +
(
	umask 077
	chmod -R go= "$other"
	cd "$other"
	export GOCACHE=$cold TZ=Pacific/Chatham
	# The program that packs is none of what is looked at.
	printf '#!/bin/sh\necho %s\n' "${registry%/*}" >hack/olm/build.sh
	WORK=$scratch/second IMAGE_ARCHIVE=$scratch/second.tar quietly hack/image.sh operator "$name"
)

while read -r file; do
	[[ -e $file ]] || fail "a package of ours was not compiled again: $file"
done <"$scratch/compiled"

for build in first second; do
	"$registry" inspect "$scratch/$build.tar" >"$scratch/$build.txt"
	program=$scratch/$build/operator/out/$arch/manager
	echo "  $build: program $(sha256sum <"$program" | cut -c1-64)"
	echo "  $build: $(sed -n '1p' "$scratch/$build.txt")"
done
cmp "$scratch/first/operator/out/$arch/manager" "$scratch/second/operator/out/$arch/manager" || fail "the programs differ"
diff "$scratch/first.txt" "$scratch/second.txt" || fail "the images differ"

echo "What is in the image"
sum_of() { sha256sum <"$1" | cut -d' ' -f1; }
size_of() { stat -c %s "$1"; }
program=$scratch/first/operator/out/$arch/manager
cat >"$scratch/want" <<END
user 65532:65532
entrypoint ["/manager"]
command []
file drwxr-xr-x 0:0 0 - licenses
file -rw-r--r-- 0:0 $(size_of LICENSE) $(sum_of LICENSE) licenses/LICENSE
file -rwxr-xr-x 0:0 $(size_of "$program") $(sum_of "$program") manager
END
sed -n '/^user \|^entrypoint \|^command \|^file /p' "$scratch/first.txt" >"$scratch/have"
diff "$scratch/want" "$scratch/have" || fail "the image (>) is not what it should be (<)"
sed 's/^/  /' "$scratch/first.txt" | cut -c1-120
for label in title=. description=. "version=$VERSION\$" source=. licenses=Apache-2.0 vendor=.; do
	grep -q "^label org.opencontainers.image.$label" "$scratch/first.txt" ||
		fail "there is no label org.opencontainers.image.$label"
done

echo "The program, as 65532 on a read-only root"
"$registry" unpack -archive "$scratch/first.tar" -folder "$scratch/root"
# shellcheck disable=SC2016 # expanded inside
said=$(unshare --mount sh -ec '
	mount --bind "$1" "$1"
	mount -o remount,bind,ro "$1"
	if touch "$1/written" 2>/dev/null; then echo "the root can be written to" >&2; exit 1; fi
	exec chroot --userspec=65532:65532 "$1" /manager -version
' sh "$scratch/root") || fail "the program does not run"
[[ $said == "$VERSION" ]] || fail "the program says it is '$said', not $VERSION"
echo "  $said"
