#!/usr/bin/env bash
# Redraws docs/images/report.png: the charts of the demo's report, without what does not run and the table, which the README has as text.
# Needs Chromium. $PYTHON must have Tonnage installed.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"${PYTHON:-.venv/bin/python}" -m tonnage compare examples/traffic-surge --quiet --report "$folder/whole.html" >/dev/null
sed 's#</head>#<style>\#not-running,\#compare-table,\#compare>.hint{display:none}</style></head>#' "$folder/whole.html" >"$folder/report.html"
mkdir -p docs/images
chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
  --disable-component-update --disable-sync --hide-scrollbars --user-data-dir="$folder/profile" \
  --window-size=1280,1010 --virtual-time-budget=8000 --screenshot="$PWD/docs/images/report.png" \
  "file://$folder/report.html" 2>/dev/null
