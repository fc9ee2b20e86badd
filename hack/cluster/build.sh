#!/usr/bin/env bash
# Builds localcluster once and prints the folder it is in, and nothing else, on stdout. Progress goes to stderr.
#
#   <repo>/bin/cluster/<key>/localcluster    the binary
#   <repo>/bin/cluster/<key>/kubectl         a link to it, or the program
#   <repo>/bin/cluster/<key>/assets/         etcd, kube-apiserver, kubectl: links, for KUBEBUILDER_ASSETS
#
# The key is a hash of everything that goes into the binary, so a folder that exists is up to date. Where the releases of
# Kubernetes and etcd can be reached, their programs are downloaded, and some 1300 packages are compiled. Otherwise, or with
# LOCALCLUSTER_FETCH=off, some 2600 are, which takes 5 to 15 minutes. Later builds reuse Go's build cache and take seconds.
# With LOCALCLUSTER_TAGS=kubelet it holds the kubelet, too, and nothing is downloaded. Needs bash, coreutils and go. Several at
# once are fine. LOCALCLUSTER_FETCH_FLAGS are flags of hack/cluster/fetch, such as where a mirror is.
set -euo pipefail
export LC_ALL=C

module=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$module/../.." && pwd)/bin/cluster
cd "$module"

kubernetes=v1.37.2 # the version of k8s.io/kubernetes in go.mod

# Flags from the caller's environment must not decide what is built.
GOFLAGS=$(../goflags.sh)
export GOFLAGS GOWORK=off CGO_ENABLED=0
version=(
	gitVersion="$kubernetes"
	gitMajor="$(cut -d. -f1 <<<"${kubernetes#v}")"
	gitMinor="$(cut -d. -f2 <<<"$kubernetes")"
	gitTreeState=clean
	gitCommit=0000000000000000000000000000000000000000
	buildDate=2026-01-01T00:00:00Z
)
ldflags='-s -w'
for value in "${version[@]}"; do
	# What the components say they are, and what they say to the API server.
	ldflags+=" -X k8s.io/component-base/version.$value -X k8s.io/client-go/pkg/version.$value"
done
tags=${LOCALCLUSTER_TAGS:-}

say() { printf 'localcluster: %s\n' "$*" >&2; }

key() {
	{
		go version
		go env GOOS GOARCH
		printf '%s\n' "$tags" "$ldflags" "$GOFLAGS"
		# Tests are not part of the binary.
		find . -type f \( -name '*.go' -o -name '*.yaml' -o -name go.mod -o -name go.sum \) \
			! -name '*_test.go' | sort | while IFS= read -r file; do
			printf '%s ' "$file"
			sha256sum <"$file"
		done
	} | sha256sum | cut -c1-16
}

# follow reads what "go build -v" says, one line for each package it compiles, and turns it into progress. Lines that
# are not package paths are errors, and are passed on.
follow() {
	local total=$1 every=10 done=0 last=-1 line status now left
	[[ -t 2 ]] && every=1
	while true; do
		status=0
		IFS= read -r -t 1 line || status=$?
		if ((status == 0)); then
			case $line in
			*' '* | '#'* | '') printf '%s\n' "$line" >&2 ;;
			*) done=$((done + 1)) ;;
			esac
		elif ((status <= 128)); then
			break # end of input; a timeout is above 128
		fi
		now=$SECONDS
		if ((now / every > last / every)); then
			last=$now left=''
			if ((done * 20 > total && done < total)); then
				left=", about $(((now * (total - done) / done + 59) / 60)) min left"
			fi
			if [[ -t 2 ]]; then
				printf '\r\033[Klocalcluster: %d of %d packages, %d s%s ' "$done" "$total" "$now" "$left" >&2
			else
				say "$done of $total packages, $now s$left"
			fi
		fi
	done
	if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi
}

# fetched prints the folder with the programs that the releases publish. It fails if they cannot be had.
fetched() {
	local etcd
	[[ $tags == '' && ${LOCALCLUSTER_FETCH:-} != off ]] || return 1
	etcd=$(sed -n 's|^\tgo.etcd.io/etcd/server/v3 ||p' go.mod)
	go build -o "$root/fetch" ./fetch
	# shellcheck disable=SC2086 # several flags
	"$root/fetch" -kubernetes "$kubernetes" -etcd "$etcd" ${LOCALCLUSTER_FETCH_FLAGS:-} || {
		say "building them from source"
		return 1
	}
}

build() {
	local folder=$1 programs='' scratch stale name
	if programs=$(fetched); then tags=fetched; fi
	local flags=(-tags "$tags" -ldflags "$ldflags")
	scratch=$(mktemp -d "$root/.build-XXXXXX")
	# shellcheck disable=SC2064 # the folder's name is known now
	trap "rm -rf '$scratch'" EXIT

	# Go itself says which packages its cache lacks, so the total is right for a cold and for a warm cache.
	stale=$(go list -deps -tags "$tags" -f '{{if .Stale}}{{.ImportPath}}{{end}}' . | grep -c . || true)
	((stale > 0)) || stale=1
	if ((stale > 100)); then
		say "building the cluster with Kubernetes $kubernetes: $stale packages to compile. This takes minutes the first time, seconds later."
	else
		say "building the cluster with Kubernetes $kubernetes: $stale packages to compile, the others are in Go's cache."
	fi

	SECONDS=0
	if ! { go build -v "${flags[@]}" -o "$scratch/localcluster" . 2>&1 >/dev/null | follow "$stale"; }; then
		say "the build failed"
		return 1
	fi
	mkdir -p "$folder/assets"
	if [[ -n $programs ]]; then
		cp -lf "$programs"/* "$folder" 2>/dev/null || cp -f "$programs"/* "$folder"
		ln -sfn ../etcd ../kube-apiserver ../kubectl "$folder/assets/"
	else
		ln -sfn localcluster "$folder/kubectl"
		for name in etcd kube-apiserver kubectl; do
			ln -sfn ../localcluster "$folder/assets/$name"
		done
	fi
	# Last, and by one rename: who finds the binary finds all of the folder.
	mv -f "$scratch/localcluster" "$folder/localcluster"
	say "built in $SECONDS s"
}

# prune keeps the three folders that were used last: branches are switched back and forth, and a node has one of its own.
prune() {
	local kept=0 folder
	while IFS= read -r folder; do
		kept=$((kept + 1))
		if ((kept > 3)); then rm -rf "$folder"; fi
	done < <(ls -td "$root"/*/)
}

mkdir -p "$root"
folder=$root/$(key)
if [[ ! -x $folder/localcluster ]]; then
	if command -v flock >/dev/null; then
		exec 9>"$root/.lock"
		flock -n 9 || { say "waiting for another build"; flock 9; }
	fi
	# Another build may have finished while we waited.
	if [[ ! -x $folder/localcluster ]]; then build "$folder"; fi
	touch "$folder"
	prune
fi
touch "$folder"
printf '%s\n' "$folder"
