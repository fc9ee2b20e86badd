#!/usr/bin/env bash
# usage: hack/images/push.sh ARCHIVE NAME:TAG
#
# Pushes the image in an OCI archive to a registry, with the credentials of "docker login" or "podman login", and prints its
# digest.
set -euo pipefail
(($# == 2)) || { sed -n 's/^# usage: /want: /p' "$0" >&2; exit 1; }
programs=$("$(dirname "${BASH_SOURCE[0]}")/build.sh")
layout=$(mktemp -d)
trap 'rm -rf "$layout"' EXIT
tar -x -C "$layout" -f "$1"
"$programs/crane" push "$layout" "$2"
