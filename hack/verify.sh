#!/usr/bin/env bash
# usage: hack/verify.sh <module folder>...
#
# Generates everything in place, runs all checks but the tests, and fails if any file of the repository is no longer what
# it was. The tree is left as generated, so that the remedy is to look at the difference and commit it.
# "make verify" calls it.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

modules=("$@")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Files that belong to the repository: tracked, or untracked and not ignored. A checkout may belong to another user,
# as in containers, and an archive of the sources has no .git.
files() {
	if git -c safe.directory='*' rev-parse --git-dir >/dev/null 2>&1; then
		git -c safe.directory='*' ls-files -z --cached --others --exclude-standard
	else
		find . -path ./.git -prune -o -path ./bin -prune -o -type f -printf '%P\0'
	fi | sort -zu
}

# One line for each file: its checksum, or nothing if it is gone, and its name.
snapshot() {
	files | while IFS= read -r -d '' file; do
		if [[ -f $file ]]; then sha256sum -- "$file"; fi
	done
}

step() { printf '\n--- %s\n' "$*"; }

failed=()
check() {
	local name=$1
	shift
	step "$name"
	if ! "$@"; then failed+=("$name"); fi
}

go_headers() {
	local want missing=0
	want=$(head -n 1 hack/boilerplate.go.txt)
	while IFS= read -r -d '' file; do
		[[ $file == *.go && -f $file ]] || continue
		if ! head -n 3 "$file" | grep -qxF "$want"; then
			echo "no licence header: $file"
			missing=1
		fi
	done < <(files)
	return $missing
}

tidy_modules() {
	local bad=0 module
	for module in "${modules[@]}"; do
		if ! (cd "$module" && go mod tidy -diff); then
			echo "not tidy: run 'go mod tidy' in $module"
			bad=1
		fi
	done
	return $bad
}

verify_modules() {
	local bad=0 module
	for module in "${modules[@]}"; do
		if ! (cd "$module" && go mod verify >"$scratch/modverify" 2>&1); then
			echo "in $module:"
			cat "$scratch/modverify"
			bad=1
		fi
	done
	return $bad
}

# A subject has at most 72 characters. An archive of the sources has no commits.
commit_subject() {
	local subject
	subject=$(git -c safe.directory='*' log -1 --no-merges --format=%s 2>/dev/null) || return 0
	((${#subject} <= 72)) || {
		echo "the subject of the last commit has ${#subject} characters, more than 72: $subject"
		return 1
	}
}

# Tools say what they change by changing it: what counts is whether the tree is the same afterwards.
snapshot >"$scratch/before"

check "generated code, CRDs and docs" "$MAKE" -s generate
check "bundle and catalog" "$MAKE" -s bundle
check "dist" "$MAKE" -s dist
check "hubs" go run ./hack/hub bin/hub
check "linters" "$MAKE" -s lint
check "licence headers" go_headers
check "commit subject" commit_subject
check "go.mod files are tidy" tidy_modules
check "modules are what go.sum says" verify_modules

snapshot >"$scratch/after"
step "tree"
# diff's exit status says that there are differences; what they are is what counts.
changed=$({ diff "$scratch/before" "$scratch/after" || true; } | sed -n 's/^[<>] [0-9a-f]*  //p' | sort -u)
if [[ -n $changed ]]; then
	echo "Generated files were not up to date. They are now: look at the differences and commit them."
	printf '  %s\n' "${changed//$'\n'/$'\n'  }"
	failed+=("files that changed: $(tr '\n' ' ' <<<"$changed")")
else
	echo "unchanged"
fi

if ((${#failed[@]} > 0)); then
	printf '\nverify FAILED:\n'
	printf '  %s\n' "${failed[@]}"
	exit 1
fi
printf '\nverify: all is well\n'
