#!/usr/bin/env bash
# Prints the path of axe-core's axe.min.js, which looks for barriers in a page; `fetch` gets it by npm when it is not there yet
# (0.6 MB, once). axe-core (MPL-2.0, Deque Systems) is used by tests alone and is no part of Tonnage.
# TONNAGE_AXE_CACHE names another folder than ~/.cache/tonnage/axe. Exits with 3 and the reason when it cannot be had.
set -euo pipefail
package=axe-core version=4.14.1
sha256=e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
cache=${TONNAGE_AXE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tonnage/axe}
file=$cache/axe-$version.min.js

if [ ! -s "$file" ]; then
  [ "${1:-}" = fetch ] || { echo "axe: no $file; scripts/axe.sh fetch gets it by npm" >&2; exit 3; }
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  "$(dirname "$0")/npm_pack.sh" "$package" "$version" "$sha256" "$work"
  tar -xzf "$work/package.tgz" -C "$work" package/axe.min.js
  mv "$work/package/axe.min.js" "$file"
fi
printf '%s\n' "$file"
