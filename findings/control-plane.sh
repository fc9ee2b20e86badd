# Starts etcd and kube-apiserver for a finding, which sources this file: those of KUBEBUILDER_ASSETS, or built from the Go module
# proxy in a temporary folder (some 6 minutes of CPU time, about 1 minute with a warm build cache). It needs bash, curl, openssl
# and go. It gives the functions api (METHOD PATH [BODY]) and unclear (MESSAGE), which ends the script with 2.
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

