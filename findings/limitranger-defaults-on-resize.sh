#!/usr/bin/env bash
# Finding: kube-apiserver 1.37.1 adds the defaults of a LimitRange to a pod when the pod is resized.
#
# A pod has no memory limit. A LimitRange with a default limit is created later. A resize of CPU alone, through pods/resize,
# then gives the pod a memory limit, which no resize can remove again. No annotation and no event names it.
#
# The script uses none of this repository's code. It runs etcd and kube-apiserver of KUBEBUILDER_ASSETS, or builds them from
# the Go module proxy in a temporary folder (some 6 minutes of CPU time, about 1 minute with a warm build cache). It ends
# with 1 if the behaviour has changed, and with 2 if it could not find out. It needs bash, curl, openssl and go. CI does not run it.
set -euo pipefail

kubernetes=v1.37.1 etcd=v3.7.0
folder=$(mktemp -d)
pids=()
finish() {
	((${#pids[@]} == 0)) || kill -KILL "${pids[@]}" 2>/dev/null || true # their data goes too
	wait 2>/dev/null || true
	rm -rf "$folder"
}
trap finish EXIT
unclear() {
	echo "not found out: $*" >&2
	tail -n 5 "$folder"/*.log >&2 || true
	exit 2
}

build() {
	mkdir "$folder/build" && cd "$folder/build"
	cat >main.go <<-'GO'
		package main

		import (
			"os"
			"path/filepath"

			"go.etcd.io/etcd/server/v3/etcdmain"
			"k8s.io/component-base/cli"
			apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
		)

		func main() {
			if filepath.Base(os.Args[0]) == "etcd" {
				etcdmain.Main(os.Args)
				return
			}
			os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
		}
	GO
	export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0
	go mod init finding
	go mod edit -require="k8s.io/kubernetes@$kubernetes" -require="go.etcd.io/etcd/server/v3@$etcd"
	local module
	module=$(go mod download -json "k8s.io/kubernetes@$kubernetes" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
	sed -n 's/^\t\(k8s.io\/[a-z-]*\) v0.0.0.*/\1/p' "$module" | sort -u | while read -r staged; do
		go mod edit -require="$staged@v0${kubernetes#v1}"
	done
	go build -trimpath -ldflags "-X k8s.io/component-base/version.gitVersion=$kubernetes" -o kube-apiserver .
	ln -s kube-apiserver etcd
}

if [[ -z ${KUBEBUILDER_ASSETS:-} ]]; then
	(build) >"$folder/build.log" 2>&1 || unclear "the programs cannot be built"
	KUBEBUILDER_ASSETS=$folder/build
fi

port=$((20000 + RANDOM % 20000))
cd "$folder"
openssl genrsa -out key.pem 2048 2>/dev/null
echo "token,admin,admin,system:masters" >tokens.csv
"$KUBEBUILDER_ASSETS/etcd" --data-dir data --listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" \
	--listen-peer-urls "http://127.0.0.1:$((port + 1))" >etcd.log 2>&1 &
pids+=($!)
"$KUBEBUILDER_ASSETS/kube-apiserver" --etcd-servers "http://127.0.0.1:$port" --cert-dir certs --bind-address 127.0.0.1 --secure-port $((port + 2)) \
	--service-cluster-ip-range 10.0.0.0/24 --service-account-issuer https://localhost --service-account-key-file key.pem \
	--service-account-signing-key-file key.pem --token-auth-file tokens.csv --disable-admission-plugins ServiceAccount >apiserver.log 2>&1 &
pids+=($!)

api() { # METHOD PATH [BODY]
	local type=application/json
	[[ $1 != PATCH ]] || type=application/strategic-merge-patch+json
	curl -ksS --fail-with-body -X "$1" -H "Authorization: Bearer token" -H "Content-Type: $type" ${3:+--data "$3"} "https://127.0.0.1:$((port + 2))$2"
}
ready() { [[ $(api GET /readyz 2>/dev/null) == ok ]] && api GET /api/v1/namespaces/default >/dev/null 2>&1; }
for ((i = 0; i < 120; i++)); do ready && break || sleep 1; done
ready || unclear "the API server does not become ready"

pods=/api/v1/namespaces/default/pods
resources() { tr -d ' \n' | sed 's/.*"image":"[^"]*","resources":\({"[a-z]*":{[^}]*}\(,"[a-z]*":{[^}]*}\)*}\).*/\1/'; }
api POST $pods '{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"example.com/app:1","resources":{"requests":{"cpu":"100m","memory":"400Mi"}}}]}}' >/dev/null ||
	unclear "no pod can be created"
before=$(api GET $pods/web | resources)
api POST /api/v1/namespaces/default/limitranges '{"metadata":{"name":"later"},"spec":{"limits":[{"type":"Container","default":{"memory":"512Mi"},"defaultRequest":{"memory":"64Mi"}}]}}' >/dev/null ||
	unclear "no LimitRange can be created"
sleep 5 # the API server reads LimitRanges from a cache
after=$(api PATCH $pods/web/resize '{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"200m"}}}]}}' | resources) ||
	unclear "the resize is refused"

echo "kube-apiserver $(api GET /version | sed -n 's/.*"gitVersion": "\(.*\)",/\1/p')"
echo "before a resize of CPU from 100m to 200m: $before"
echo "after it:                                 $after"
if [[ $before == *limits* || $after != *'"cpu":"200m"'* ]]; then
	unclear "the pod is not as it should be"
elif [[ $after == *'"limits":{"memory":"512Mi"}'* ]]; then
	echo "As found: LimitRanger adds its default memory limit to a resize that requests CPU alone."
else
	echo "CHANGED: the resize adds no memory limit."
	exit 1
fi
