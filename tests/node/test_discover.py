"""What NVML says of cards, replayed from answers of an H100 and an H200 (driver 580.159.04, MIG off)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tonnage.cli import mig_discover
from tonnage.errors import InputError
from tonnage.facts import mig
from tonnage.node import nvml
from tonnage.node.discover import Difference, discover
from tonnage.node.nvml import Instance, ProfileInfo, profile_info

DATA = Path(__file__).parents[1] / "data" / "nvml"


class Recording:
    """The answers of one card. ``places``: (start, size) by profile id; that of the H200 was recorded without."""

    def __init__(self, name: str) -> None:
        self.card: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
        self.rows: dict[int, Any] = dict(self.card["profiles"])
        self.places: dict[int, list[tuple[int, int]]] = {
            fields["id"]: [(start, size) for start, size in fields["placements"]]
            for fields in self.rows.values()
            if isinstance(fields, dict) and "placements" in fields
        }
        self.made: list[Instance] = []

    def driver(self) -> str:
        return str(self.card["driver"])

    def count(self) -> int:
        return 1

    def name(self, card: int) -> str:
        return str(self.card["name"])

    def uuid(self, card: int) -> str:
        return "GPU-0"

    def device_id(self, card: int) -> int:
        return int(self.card["pci"][0])

    def memory_mib(self, card: int) -> int:
        return int(self.card["mem"]) >> 20

    def mode(self, card: int) -> tuple[bool, bool] | None:
        current, pending = self.card["mode"]
        return bool(current), bool(pending)

    def profile(self, card: int, number: int) -> ProfileInfo | None:
        fields = self.rows[number]
        return profile_info(fields) if isinstance(fields, dict) else None

    def placements(self, card: int, profile_id: int) -> list[tuple[int, int]] | None:
        return self.places.get(profile_id)

    def instances(self, card: int, profile: ProfileInfo) -> list[Instance] | None:
        return [one for one in self.made if one.profile_id == profile.id]


@pytest.mark.parametrize(("name", "gpu"), [("h100", "h100"), ("h200", "h200")])
def test_a_real_card_is_as_in_the_table(name: str, gpu: str) -> None:
    (found,) = discover(Recording(name))
    assert found.gpu == gpu
    assert found.mode == (False, False)
    assert {one.profile.name for one in found.profiles} == {one.name for one in mig.profiles(gpu, plain=False)}
    assert found.differences == ()
    assert all(one.placed == (name == "h100") for one in found.profiles)
    assert [one.profile.sms for one in found.profiles] == [16, 32, 60, 64, 132, 16, 26]


def test_what_the_card_says_wins_and_differences_are_told() -> None:
    card = Recording("h100")
    card.rows[2]["multiprocessorCount"] = 58
    card.rows[9] = "NVMLError_NotSupported(3)"
    card.rows[5] = {**card.rows[0], "id": 77, "name": "MIG 8g.90gb"}
    card.places = {14: [(0, 2), (2, 2)], 19: [(i, 1) for i in range(7)]}
    (found,) = discover(card)
    by_name = {one.profile.name: one for one in found.profiles}
    assert by_name["3g.40gb"].profile.sms == 58
    assert by_name["2g.20gb"].profile.starts == (0, 2)
    assert by_name["1g.10gb"].placed
    assert by_name["3g.40gb"].profile.starts == (0, 4)
    assert set(found.differences) == {
        Difference("3g.40gb", "sms", "60", "58"),
        Difference("2g.20gb", "starts", "0 2 4", "0 2"),
        Difference("8g.90gb", "profile", "", "there"),
        Difference("1g.20gb", "profile", "there", ""),
    }


def test_instances_that_exist_are_listed_by_place() -> None:
    card = Recording("h200")
    card.made = [Instance(2, 9, 4, 4), Instance(7, 19, 0, 1)]
    (found,) = discover(card)
    assert [(name, one.start) for name, one in found.instances] == [("1g.18gb", 0), ("3g.71gb", 4)]


def test_a_card_that_no_table_has_is_described_all_the_same() -> None:
    card = Recording("h100")
    card.card |= {"name": "NVIDIA X1000", "pci": [0x999910DE, 0]}
    (found,) = discover(card)
    assert found.gpu == ""
    assert len(found.profiles) == 7
    assert all(one.field == "profile" for one in found.differences)


@pytest.mark.parametrize("name", ["h100", "h200"])
def test_a_driver_that_names_no_profile_of_a_card_that_no_table_has_leaves_them_to_the_formula(name: str) -> None:
    card = Recording(name)
    own = [one.info.name for one in discover(card)[0].profiles if one.profile.plain]
    card.card |= {"name": "NVIDIA X1000", "pci": [0x999910DE, 0]}
    for fields in card.rows.values():
        if isinstance(fields, dict):
            fields.pop("name", None)
    (found,) = discover(card)
    assert [one.profile.name for one in found.profiles if one.info.id != 20] == own


def test_the_table_for_people_has_at_most_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    card = Recording("h200")
    card.card["mode"] = [0, 1]
    card.places = {19: [(i, 1) for i in range(7)]}
    mig_discover.show("580.159.04", discover(card), "table")
    out = capsys.readouterr().out
    assert "GPU 0: NVIDIA H200 (h200), 143771 MiB, MIG off, on after a reset" in out
    assert "{0,1,2,3,4,5,6}:1\n" in out
    assert "{0,4}:4 (table)" in out
    assert "as in the table" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_the_json_says_where_each_place_is_from(capsys: pytest.CaptureFixture[str]) -> None:
    for name, device_id, origin in (("h100", "0x233010DE", "card"), ("h200", "0x233510DE", "table")):
        mig_discover.show("580.159.04", discover(Recording(name)), "json")
        (card,) = json.loads(capsys.readouterr().out)["cards"]
        assert card["device_id"] == device_id
        assert card["mig"] == {"on": False, "pending": False}
        assert {one["starts_from"] for one in card["profiles"]} == {origin}


class FakeError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__("Driver Not Loaded")
        self.value = value


def fake(**functions: Any) -> SimpleNamespace:
    """The part of pynvml that is called, with NVML's error numbers (nvml.h)."""
    codes = {"NOT_SUPPORTED": 3, "INVALID_ARGUMENT": 2, "NO_PERMISSION": 4, "FUNCTION_NOT_FOUND": 13, "NOT_FOUND": 6}
    errors = {f"NVML_ERROR_{name}": value for name, value in codes.items()}
    return SimpleNamespace(NVMLError=FakeError, nvmlInit=lambda: None, nvmlShutdown=lambda: None, **errors, **functions)


def raises(value: int) -> Any:
    def function(*_: Any) -> None:
        raise FakeError(value)

    return function


def test_placements_are_read_into_an_array_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    class Place(ctypes.Structure):
        _fields_ = [("start", ctypes.c_uint), ("size", ctypes.c_uint)]

    def possible(handle: object, profile_id: int, array: Any, count: Any) -> int:
        assert (handle, profile_id) == ("card 0", 9)
        for at, start in enumerate((0, 4)):
            array[at].start, array[at].size = start, 4
        count._obj.value = 2
        return 0

    module = fake(
        c_nvmlGpuInstancePlacement_t=Place,
        nvmlDeviceGetHandleByIndex=lambda index: f"card {index}",
        nvmlDeviceGetGpuInstancePossiblePlacements=possible,
        nvmlDeviceGetMigMode=raises(3),
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with nvml.Library() as library:
        assert library.placements(0, 9) == [(0, 4), (4, 4)]
        assert library.mode(0) is None


def test_errors_of_the_driver_are_said_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake(nvmlDeviceGetHandleByIndex=lambda _: "", nvmlDeviceGetMigMode=raises(999))
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with nvml.Library() as library, pytest.raises(InputError, match="NVML failed: Driver Not Loaded"):
        library.mode(0)
    module.nvmlInit = raises(9)
    with pytest.raises(InputError, match="NVML cannot be used: Driver Not Loaded"), nvml.Library():
        pass
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(InputError, match="nvidia-ml-py, which is not installed"):
        nvml.Library()
