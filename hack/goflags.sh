#!/usr/bin/env bash
# usage: GOFLAGS=$(hack/goflags.sh) go build ...
#
# Prints the flags of all builds but that of the Dockerfile. With the same ones everywhere, Go compiles each dependency once for
# the cluster, the tests, and all programs. Nothing here needs the commit in a binary, and the folder is not always a git checkout
# that git trusts. A cold build costs less CPU without debug information, and with a compiler that collects no garbage below 1 GiB.
# For a debugger, build with GOFLAGS=.
echo '-buildvcs=false -trimpath -gcflags=all=-dwarf=false "-toolexec=env GOGC=off GOMEMLIMIT=1GiB"'
