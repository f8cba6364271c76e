"""A page in Chromium: what is there after its scripts have run, and what the console says."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = Path(__file__).parents[2] / "scripts" / "axe.sh"

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


def dump(tmp_path: Path, page: str, fragment: str = "", console: Sequence[str] = ()) -> str:
    """The document after its scripts have run. Nothing but ``console`` may stand in the console: errors, warnings, and
    what a script has left there."""
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-logging=stderr",
        f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000", "--dump-dom",
        f"file://{tmp_path / 'report.html'}{fragment}",
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = re.findall(r":CONSOLE:\d+\] (.*?), source:", ran.stderr)
    assert said == list(console), said
    return ran.stdout


def root(dom: str) -> str:
    """The tag of the document."""
    found = re.search(r"<html[^>]*>", dom)
    assert found
    return found[0]


def in_frames(tmp_path: Path, pages: Sequence[tuple[int, str]], script: str) -> list[Any]:
    """What a function of a frame's document gives for each page, at its width in pixels. ``script``: that function.
    It is asked when all pages are loaded, and again as long as it gives null for one of them."""
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(page, quote=True)}"></iframe>'
        for width, page in pages
    )
    ask = f"""<script>
const look = {script};
addEventListener('load', () => {{
  const frames = [...document.querySelectorAll('iframe')];
  const again = setInterval(() => {{
    const found = frames.map((one) => look(one.contentDocument, one.clientWidth));
    if (found.some((one) => one === null)) return;
    clearInterval(again);
    frames.forEach((one) => one.remove());
    document.getElementById('found').textContent = JSON.stringify(found);
  }}, 50);
}});
</script>"""
    dom = dump(tmp_path, f"<!doctype html><body>{frames}<pre id='found'></pre>{ask}</body>")
    found = re.search(r"<pre id=.found.>(.*?)</pre>", dom, re.S)
    assert found is not None and found[1], "nothing was found in time"
    told: list[Any] = json.loads(html.unescape(found[1]))
    return told


@cache
def _axe() -> tuple[str, str]:
    ran = subprocess.run([str(AXE)], text=True, capture_output=True, timeout=60, check=False)
    return ran.stdout.strip(), ran.stderr.strip()


def barriers(tmp_path: Path, pages: Sequence[tuple[int, str]]) -> list[list[str]]:
    """What axe-core finds in each page at its width: the impact, the rule, how often, and the first place. Skips where
    axe-core is not there."""
    path, why = _axe()
    if not path:
        pytest.skip(why)
    run = f"""<script>{Path(path).read_text(encoding="utf-8")}</script><script>addEventListener('load', async () => {{
  const found = await axe.run();
  const told = found.violations.map((one) => `${{one.impact}} ${{one.id}} ${{one.nodes.length}} ${{one.nodes[0].html}}`);
  document.documentElement.dataset.axe = JSON.stringify(found.passes.length ? told : ['axe-core looked at nothing']);
}})</script>"""
    return in_frames(
        tmp_path,
        [(width, page.replace("</body>", f"{run}</body>")) for width, page in pages],
        "(page) => page.documentElement.dataset.axe ? JSON.parse(page.documentElement.dataset.axe) : null",
    )
