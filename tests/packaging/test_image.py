"""`make image`: an OCI archive that is well formed and reproducible, with what the Containerfile says."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

import yaml_text
from chart_builders import CHART, ROOT
from e2e import oci
from scripts import image
from tonnage import __version__

NAME = "registry.test/tonnage:1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A file system with everything a layer can hold."""
    found = tmp_path / "root"
    (found / "opt/tonnage/bin").mkdir(parents=True)
    program = found / "opt/tonnage/bin/tonnage"
    program.write_text("#!/bin/true\n")
    program.chmod(0o755)
    (found / "opt/tonnage/bin/python").symlink_to("/usr/bin/python3.11")
    os.link(program, found / "again")
    (found / "tmp").mkdir()
    (found / "tmp").chmod(0o1777)
    (found / ("deep/" * 30)).mkdir(parents=True)
    (found / ("deep/" * 30) / "a-name-that-does-not-fit-into-an-old-header").write_text("x")
    return found


def blobs(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as file:
        return {one.name: file.extractfile(one).read() for one in file if one.isfile()}  # type: ignore[union-attr]


def test_what_is_in_the_archive_is_named_by_its_hash_and_size(root: Path, tmp_path: Path) -> None:
    digest = oci.archive(tmp_path / "a.tar", root, {"User": "1:1"}, [NAME, "registry.test/tonnage:2"])
    files = blobs(tmp_path / "a.tar")
    for name, data in files.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"
    index = json.loads(files["index.json"])
    names = [one["annotations"]["io.containerd.image.name"] for one in index["manifests"]]
    assert names == [NAME, "registry.test/tonnage:2"]
    assert {one["digest"] for one in index["manifests"]} == {digest}
    manifest = json.loads(files[f"blobs/sha256/{digest.removeprefix('sha256:')}"])
    for about in (manifest["config"], *manifest["layers"]):
        data = files[f"blobs/sha256/{about['digest'].removeprefix('sha256:')}"]
        assert len(data) == about["size"]
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}


def test_the_same_files_give_the_same_bytes(root: Path, tmp_path: Path) -> None:
    oci.archive(tmp_path / "a.tar", root, {"User": "1:1"}, [NAME])
    os.utime(root / "again", (1, 1))
    oci.archive(tmp_path / "b.tar", root, {"User": "1:1"}, [NAME])
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_what_comes_out_is_what_went_in(root: Path, tmp_path: Path) -> None:
    config = {"User": "65532:65532", "Env": ["A=b"]}
    oci.archive(tmp_path / "a.tar", root, config, [NAME])
    out = tmp_path / "out"
    out.mkdir()
    assert oci.read(tmp_path / "a.tar", out) == config

    def shown(top: Path) -> dict[str, tuple[int, str]]:
        return {
            str(path.relative_to(top)): (
                path.lstat().st_mode,
                str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else "",
            )
            for path in top.rglob("*")
        }

    assert shown(out) == shown(root)


def test_the_container_is_the_containerfiles() -> None:
    found = image.config()
    assert found["Entrypoint"] == ["tonnage"]
    assert found["Cmd"] == ["--help"]
    assert found["User"] == "65532:65532"
    assert found["WorkingDir"] == "/tmp"
    port = yaml_text.load((CHART / "values.yaml").read_text())["listen"]["port"]
    assert found["ExposedPorts"] == {f"{port}/tcp": {}}
    environment = dict(one.split("=", 1) for one in found["Env"])
    assert environment["PATH"] == "/opt/tonnage/bin:/usr/local/bin:/usr/bin:/bin"
    assert (environment["HOME"], environment["PYTHONDONTWRITEBYTECODE"]) == ("/tmp", "1")
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in found["Labels"].items()}
    assert (labels["title"], labels["version"]) == ("tonnage", __version__)
    assert "$" not in json.dumps(found)


def test_the_accounts_are_the_containerfiles() -> None:
    assert image._accounts() == [
        ("etc/group", "tonnage:x:65532:"),
        ("etc/passwd", "tonnage:x:65532:65532:Tonnage:/tmp:/usr/sbin/nologin"),
    ]


def test_a_machine_without_apt_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert image.main(["--out", str(tmp_path / "image.tar")]) == 3
    assert (
        "no apt-get: the image is made on Debian or Ubuntu; elsewhere use the Containerfile" in capsys.readouterr().err
    )
    assert not (tmp_path / "image.tar").exists()


@pytest.mark.parametrize("name", ["tonnage", "Tonnage:1", "registry.test/tonnage:", "a b:1"])
def test_a_name_that_is_none_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        image.main(["--name", name])
    assert refused.value.code == 2
    assert "expected REPOSITORY:TAG" in capsys.readouterr().err


def test_the_makefile_has_it() -> None:
    assert "-m scripts.image $(ARGS)" in (ROOT / "Makefile").read_text()
