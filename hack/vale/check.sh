#!/usr/bin/env bash
# usage: hack/vale/check.sh <vale>
#
# Fails unless each rule of our style finds the bad sentence that is there for it. "make lint" calls it, because
# a style that finds nothing looks like good prose.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if found=$("$1" --output=line hack/vale/bad.md); then
	echo "Vale accepts hack/vale/bad.md" >&2
	exit 1
fi
for rule in hack/vale/styles/VerticalScaler/*.yml; do
	name=$(basename "$rule" .yml)
	if ! grep -q "VerticalScaler\.$name:" <<<"$found"; then
		printf 'The rule %s does not find its sentence in hack/vale/bad.md. Vale says:\n%s\n' "$name" "$found" >&2
		exit 1
	fi
done
