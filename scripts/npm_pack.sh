#!/usr/bin/env bash
# Fetches one archive of an npm package: scripts/npm_pack.sh PACKAGE VERSION SHA256 FOLDER puts it into FOLDER as package.tgz.
# Exits with 3 and the reason when it cannot be had, or is not the one that is expected.
set -euo pipefail
package=$1 version=$2 sha256=$3 folder=$4

refuse() { printf '%s\n' "$*" >&2; exit 3; }

for needed in npm sha256sum; do
  command -v "$needed" >/dev/null || refuse "$needed not found; it is needed to fetch $package"
done
npm pack --silent --pack-destination "$folder" "$package@$version" >/dev/null 2>"$folder/log" ||
  refuse "npm pack $package@$version failed: $(tail -n 1 "$folder/log")"
mv "$folder"/*.tgz "$folder/package.tgz"
echo "$sha256  $folder/package.tgz" | sha256sum --check --quiet - >/dev/null 2>&1 ||
  refuse "$package@$version is not the archive that is expected (sha256 differs)"
