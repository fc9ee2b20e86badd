#!/usr/bin/env bash
# Finding: a program that evaluates admission policies with k8s.io/apiserver 0.37.2 links the fake clientset of client-go.
#
# The package admission/plugin/policy/validating evaluates ValidatingAdmissionPolicies. Its dependency policy/generic has a file
# that builds a context for tests, without the suffix _test. It imports k8s.io/client-go/kubernetes/fake, with the fakes of all
# API groups. kube-apiserver compiles and links them, too.
#
# The script uses none of the product's code. It ends with 1 if the behaviour has changed, and with 2 if it could not find
# out. CI does not run it. It needs bash, coreutils and go, and compiles nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0
policy=k8s.io/apiserver/pkg/admission/plugin/policy
cat >main.go <<-GO
	package main

	import _ "$policy/validating"

	func main() {}
GO
{
	go mod init finding
	go get k8s.io/apiserver@v0.37.2
	go mod tidy
} >get.log 2>&1 || {
	echo "not found out: the module cannot be read" >&2
	tail -n 5 get.log >&2
	exit 2
}
fakes=$(go list -deps . | grep -cE '^k8s\.io/client-go/.*fake(/|$)' || true)
from=$(go list -deps -f '{{$p := .ImportPath}}{{range .Imports}}{{if eq . "k8s.io/client-go/kubernetes/fake"}}{{$p}}{{end}}{{end}}' . | grep . || true)
echo "k8s.io/apiserver v0.37.2: policy/validating depends on $fakes packages of fakes"
echo "kubernetes/fake is imported by: $from"
if ((fakes > 50)) && [[ $from == "$policy/generic" ]]; then
	echo "As found: the fake clientset is part of the program."
else
	echo "CHANGED: the fake clientset is not part of the program."
	exit 1
fi
