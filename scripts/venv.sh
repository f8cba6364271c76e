#!/usr/bin/env bash
# Makes $VENV with $PYTHON and installs the project into it, editable, with the extras given as the first argument.
# On a bare Debian the venv module is a package of its own; it is installed when this runs as root.
set -euo pipefail
venv=${VENV:-.venv} python=${PYTHON:-python3} target=${1:-.}

say() { printf '%s\n' "$*" >&2; }

if ! command -v "$python" >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq python3 python3-venv >/dev/null
  else
    say "error: $python not found; install Python 3.11 or newer, or name one with PYTHON=…"; exit 2
  fi
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  say "error: $("$python" --version) is too old; Tonnage needs Python 3.11 or newer (PYTHON=… names another)"; exit 2
fi
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing python3-venv"
    apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
  else
    say "error: this Python cannot make virtual environments; run: sudo apt-get install python3-venv"; exit 2
  fi
fi
if [ ! -x "$venv/bin/python" ]; then
  say "making $venv"
  "$python" -m venv "$venv"
fi

# What pip is at, on a terminal: one line that changes from package to package.
progress() {
  local line name count=0 begun=$SECONDS
  while IFS= read -r line; do
    case $line in
      "Collecting "*)
        name=${line#Collecting } count=$((count + 1))
        show "$count: ${name%%[^A-Za-z0-9._-]*}" ;;
      "Installing collected packages"*) show "unpacking $count packages" ;;
    esac
  done
  show ""
  say "installed in $((SECONDS - begun)) s"
}
show() { [ ! -t 2 ] || printf '\r\033[K%s' "${1:+  $1}" >&2; }

say "installing Tonnage into $venv"
"$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off --editable "$target" | progress
