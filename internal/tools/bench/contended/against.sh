#!/usr/bin/env bash
# Compares this directory's build of the lock engine with the build of another commit:
#
#   against.sh COMMIT [flags of contended]
#
# It exports the commit to a temporary directory, replaces internal/tools/bench/contended there with this directory, builds both,
# and lets this build run both alternately. `make bench-contended AGAINST=COMMIT` calls it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../../.."

commit=${1:?the commit to compare with is missing}
shift
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

mkdir "$directory/tree"
git archive "$commit" | tar -x -C "$directory/tree"
rm -rf "$directory/tree/internal/tools/bench/contended"
mkdir -p "$directory/tree/internal/tools/bench"
cp -R internal/tools/bench/contended "$directory/tree/internal/tools/bench/contended"
go build -o "$directory/this" ./internal/tools/bench/contended
(cd "$directory/tree" && go build -o "$directory/other" ./internal/tools/bench/contended)
"$directory/this" --against "$directory/other" "$@"
