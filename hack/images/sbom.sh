#!/usr/bin/env bash
# usage: hack/images/sbom.sh
#
# Writes, for each of PLATFORMS, a list of the modules in the operator's program: bin/images/<name>-<version>-linux-<arch>.cdx.json,
# in CycloneDX's format. The list comes from the program itself, by what the Go linker wrote into it, and is then checked
# against that. It carries the program's checksum, and no time but SOURCE_DATE_EPOCH: the same program gives the same list.
# "make sbom" sets CYCLONEDX_GOMOD and VERSION; hack/images/image.sh explains the rest of the environment.
set -euo pipefail
export LC_ALL=C
umask 022
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
	echo "hack/images/sbom.sh: $*" >&2
	exit 1
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The time of the release, as hack/images/image.sh has it.
created=$(sed -n 's/^ *createdAt: *//p' config/manifests/bases/*.clusterserviceversion.yaml | tr -d "\"'")
if [[ -n ${SOURCE_DATE_EPOCH:-} ]]; then
	created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ 2>/dev/null ||
		date -u -r "$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
fi

# The modules in a program, with replacements: "path version" in each line. A module of this tree has its own name, not its folder's.
modules_of() {
	go version -m "$1" | awk '
		$1 == "dep" { if (line) print line; line = $2 " " $3 }
		$1 == "=>" && $2 !~ /^\./ { line = $2 " " $3 }
		END { if (line) print line }' | sort
}

# Libraries in a list but the standard one, in the same form. The tool writes one property a line, the name before the
# version.
libraries_in() {
	awk -F'"' '
		/^      "name":/ { name = $4 }
		/^      "version":/ && name { if (name != "std") print name " " $4; name = "" }' \
		<(sed -n '/^  "components"/,/^  \]/p' "$1") | sort
}

# The API is a module of this tree. The tool lists it as ./api, without a version: these are the name and version to publish.
api=$(sed -n 's/^module //p' api/go.mod)
api_version=$(sed -n "s|^[[:space:]]*$api \(v[^ ]*\).*|\1|p" go.mod)
[[ -n $api_version ]] || fail "go.mod asks for no version of $api"

mkdir -p bin/images
hack/images/image.sh compile >"$scratch/programs"
while read -r arch program; do
	list=bin/images/verticalscaler-operator-$VERSION-linux-$arch.cdx.json
	# Licences are read from the modules' sources, which are here since the program has just been compiled from them.
	GOPROXY=off GOFLAGS=-mod=mod "$CYCLONEDX_GOMOD" bin -json -noserial -std -licenses -version "$VERSION" \
		-output "$scratch/list.json" "$program" 2>"$scratch/log" || { cat "$scratch/log" >&2; fail "no list of $program"; }
	sed -i.old -E -e "s|^( *\"timestamp\": )\"[^\"]*\"|\1\"$created\"|" -e "s|pkg:golang/\./api@\(devel\)|pkg:golang/$api@$api_version|" \
		-e "/^ *\"name\": \"\.\/api\"/{s|\./api|$api|;n;s|\(devel\)|$api_version|;}" "$scratch/list.json"

	modules_of "$program" >"$scratch/modules"
	[[ -s $scratch/modules ]] || fail "$program says nothing about its modules"
	libraries_in "$scratch/list.json" >"$scratch/libraries"
	diff "$scratch/modules" "$scratch/libraries" >&2 ||
		fail "the list (>) differs from the modules that the program names (<)"
	sum=$({ sha256sum "$program" 2>/dev/null || shasum -a 256 "$program"; } | cut -d' ' -f1)
	grep -qF "\"$sum\"" "$scratch/list.json" || fail "the list does not have the program's checksum, $sum"
	mv "$scratch/list.json" "$list"
	chmod 644 "$list"
	echo "$list: $(wc -l <"$scratch/modules") modules, as in the program"
done <"$scratch/programs"
