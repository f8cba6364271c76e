"""`tonnage up` replaces and deletes only kubeconfigs that it has written itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.apiserver import kubeconfig

URL = "http://127.0.0.1:1234/token"
THEIRS = """apiVersion: v1
kind: Config
clusters:
- {name: production, cluster: {server: "https://10.0.0.1"}}
"""


def test_a_file_that_is_not_there_may_be_made(tmp_path: Path) -> None:
    assert kubeconfig.is_ours(tmp_path / "config")


def test_its_own_file_may_be_replaced(tmp_path: Path) -> None:
    assert kubeconfig.is_ours(kubeconfig.write(tmp_path / "config", URL))


@pytest.mark.parametrize(
    "text",
    [
        THEIRS,
        THEIRS.replace("production", "tonnage"),
        THEIRS + '- {name: tonnage, cluster: {server: "http://127.0.0.1:1/x"}}\n',
        "not: [yaml",
        "",
        "[]",
    ],
    ids=["another cluster", "a namesake", "ours among others", "broken", "empty", "a list"],
)
def test_another_file_may_not(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert not kubeconfig.is_ours(path)


def test_the_file_goes_with_its_server(tmp_path: Path) -> None:
    path = kubeconfig.write(tmp_path / "config", URL)
    kubeconfig.remove(path, URL)
    assert not path.exists()
    kubeconfig.remove(path, URL)


def test_the_file_of_a_later_server_stays(tmp_path: Path) -> None:
    path = kubeconfig.write(tmp_path / "config", "http://127.0.0.1:1235/other")
    kubeconfig.remove(path, URL)
    assert path.exists()
