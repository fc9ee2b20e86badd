#!/usr/bin/env bash
# usage: hack/node/programs.sh FOLDER
#
# Writes images of real programs for the tests to FOLDER: java.tar, node.tar, redis.tar and gcc.tar. The image in NAME.tar is
# verticalscaler.local/NAME:dev.
#
# The files are those of this machine's packages: a program, the shared libraries that it loads, and /tmp. The images are small,
# because containerd copies one for each container.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if asks_for_help "$@" || [ $# != 1 ]; then
	usage
	exit 0
fi
packages=$(missing_program_packages | tr '\n' ' ')
[ -z "$packages" ] || fail "programs are missing (packages: ${packages% }); hack/node/install.sh -programs installs them"

out=$(realpath "$1")
images=$("$repo/hack/images/build.sh")/images
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# libraries <file>...: the shared libraries that they load.
libraries() {
	ldd "$@" | sed -nE 's/^\t(.* => )?(\/[^ ]+) \(.*/\2/p' | sort -u
}

# pack <name> <file>...: an image with these files, in addition to those in $work/<name>.
pack() {
	local name=$1
	shift
	mkdir -p "$work/$name"
	install -d -m 1777 "$work/$name/tmp"
	[ $# = 0 ] || cp -L --parents "$@" "$work/$name"
	"$images" -name "verticalscaler.local/$name:dev" -archive "$out/$name.tar" -user 65532:65532 "linux/$(go env GOARCH)=$work/$name"
}

mkdir "$work/java" "$work/redis"
jlink --add-modules jdk.httpserver --no-header-files --no-man-pages --output "$work/java/jdk"
javac -d "$work/java" "$here/programs/Server.java"
mapfile -t files < <(find "$work/java/jdk" -name '*.so')
mapfile -t files < <(libraries "${files[@]}" | grep -v "^$work")
pack java "${files[@]}"

mapfile -t files < <(libraries "$(command -v node)")
pack node "$(command -v node)" "${files[@]}"

# The server is the same program as this one; its name decides.
cp "$(command -v redis-check-rdb)" "$work/redis/redis-server"
mapfile -t files < <(libraries "$work/redis/redis-server")
pack redis "${files[@]}"

compiler=("$(command -v bash)" "$(command -v sleep)" "$(command -v gcc)" "$(gcc -print-prog-name=cc1)")
mapfile -t files < <(libraries "${compiler[@]}")
pack gcc "${compiler[@]}" "${files[@]}"
