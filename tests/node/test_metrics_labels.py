"""Labels that a node's metrics have beside dcgm-exporter's usual ones: of pods, and jobs of a batch system."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client
from tonnage.live.pod_labels import asking
from tonnage.node.attribution import PodHolder
from tonnage.node.counters import default_counters
from tonnage.node.device_health import DeviceHealth
from tonnage.node.exporter import Exposed, MoreLabels, NodeExporter
from tonnage.node.job_mapping import MOST_JOBS, jobs
from tonnage.node.pod_labels import AGAIN_NS, MOST_LABELS, MOST_PODS, PER_READING, PodLabels, allowed
from tonnage.node.simulated import SimulatedMachine
from tonnage.units import NS_PER_S

NOW = 1_800_000_000 * NS_PER_S
A = PodHolder("team", "a", "main")


def _temperatures(machine: SimulatedMachine, more: MoreLabels, *pods: PodHolder) -> list[Exposed]:
    exporter = NodeExporter(machine, DeviceHealth(), "n", default_counters())
    found = exporter.read(NOW, {machine.cards()[0].uuid: pods}, more=more)
    return [one for one in found if one.name == "DCGM_FI_DEV_GPU_TEMP"]


def test_the_documentation_says_how_many_series_there_are() -> None:
    machine = SimulatedMachine("8xh100", node="n")
    exporter = NodeExporter(machine, DeviceHealth(), "n", default_counters())
    whole = len(exporter.read(NOW, {}))
    for card in range(8):
        machine.set_mode(card, True)
        for start in range(7):
            machine.create(card, "1g.10gb", start)
    page = (Path(__file__).resolve().parents[2] / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert (
        f"that is {whole} for 8 H100, and {len(exporter.read(NOW, {}))} where each is partitioned into\nseven" in page
    )


# ---- jobs ----


def test_files_are_named_by_gpu_or_instance_and_each_line_is_a_job(tmp_path: Path) -> None:
    for name, text in {
        "0": "17\n18\n17\n\n",
        "1.7": " 19 \n",
        "2": "\n",
        "gpu3": "20",
        "1.2.3": "21",
        ".4": "22",
    }.items():
        (tmp_path / name).write_text(text)
    assert jobs(tmp_path) == {"0": ("17", "18"), "1.7": ("19",)}


def test_not_more_jobs_are_shown_than_a_fixed_number(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("\n".join(map(str, range(1000))))
    assert len(jobs(tmp_path)["0"]) == MOST_JOBS


def test_a_folder_that_is_not_there_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder of jobs: No such file or directory"):
        jobs(tmp_path / "none")


def test_a_gpu_of_one_job_has_its_label_and_one_of_several_a_series_each_that_says_shared() -> None:
    machine = SimulatedMachine("2xh100", node="n")
    one, two, other = _temperatures(machine, MoreLabels({}, {"0": ("17", "18"), "1": ("19",)}))
    assert [(each.labels["gpu"], each.labels["hpc_job"], each.labels.get("shared")) for each in (one, two, other)] == [
        ("0", "17", "true"),
        ("0", "18", "true"),
        ("1", "19", None),
    ]
    assert one.value == two.value


def test_a_job_on_a_mig_instance_has_the_instances_series_and_not_the_cards() -> None:
    machine = SimulatedMachine("h100", node="n")
    machine.set_mode(0, True)
    machine.create(0, "3g.40gb", 0)
    state = machine.mig(0)
    assert state is not None
    instance = state.instances[0].id
    exporter = NodeExporter(machine, DeviceHealth(), "n", default_counters())
    found = exporter.read(NOW, {}, more=MoreLabels({}, {f"0.{instance}": ("17",)}))
    assert {one.name for one in found if one.labels.get("hpc_job") == "17"} >= {"DCGM_FI_DEV_FB_USED"}
    assert {one.labels.get("GPU_I_ID") for one in found if "hpc_job" in one.labels} == {str(instance)}


# ---- pods ----


class _Api:
    """``labels`` of pods; counts who is asked for."""

    def __init__(self) -> None:
        self.labels: dict[tuple[str, str], dict[str, str]] = {}
        self.asked: list[tuple[str, str]] = []
        self.down = False

    def ask(self, pod: tuple[str, str]) -> dict[str, str] | None:
        self.asked.append(pod)
        if self.down:
            raise InputError.at("the API does not answer")
        return self.labels.get(pod)


def test_labels_of_a_pod_are_those_of_its_metrics_with_valid_names_and_hide_none_of_them() -> None:
    api = _Api()
    api.labels["team", "a"] = {"app": "chat", "example.com/tier": "gold", "pod": "other", "0": "zero", "Hostname": "x"}
    labels = PodLabels(api.ask, []).of([("team", "a")], NOW)
    assert labels == {("team", "a"): {"app": "chat", "example_com_tier": "gold", "_0": "zero"}}
    first, second = _temperatures(SimulatedMachine("2xh100", node="n"), MoreLabels(labels, {}), A)
    assert (first.labels["pod"], first.labels["Hostname"], first.labels["app"]) == ("a", "n", "chat")
    assert "app" not in second.labels, "the other GPU has no pod"


def test_only_keys_that_an_expression_finds_are_shown() -> None:
    api = _Api()
    api.labels["team", "a"] = {"app": "chat", "app.kubernetes.io/name": "x", "pod-template-hash": "77"}
    assert PodLabels(api.ask, allowed(["^app$", "hash"])).of([("team", "a")], NOW)["team", "a"] == {
        "app": "chat",
        "pod_template_hash": "77",
    }


def test_what_is_no_expression_is_refused() -> None:
    with pytest.raises(InputError, match="no regular expression"):
        allowed(["("])


def test_a_pod_is_looked_up_once_a_minute_and_forgotten_when_it_has_no_device_any_more() -> None:
    api = _Api()
    api.labels["team", "a"] = {"app": "chat"}
    found = PodLabels(api.ask, [])
    for second in range(0, 50, 5):
        found.of([("team", "a")], NOW + second * NS_PER_S)
    assert len(api.asked) == 1
    api.labels["team", "a"] = {"app": "search"}
    assert found.of([("team", "a")], NOW + AGAIN_NS)["team", "a"] == {"app": "search"}
    assert found.of([], NOW + AGAIN_NS) == {}
    assert len(found) == 0


def test_what_is_kept_is_bounded_whatever_number_of_pods_comes() -> None:
    api = _Api()
    found = PodLabels(api.ask, [])
    for number in range(100):
        pods = [("team", f"{number:03}-{one}") for one in range(MOST_PODS)]
        for pod in pods[:3]:
            api.labels[pod] = {f"key-{one:03}": "v" for one in range(100)}
        before = len(api.asked)
        found.of(pods, NOW)
        assert len(api.asked) - before <= PER_READING
        assert len(found) <= MOST_PODS
    assert max(len(labels) for labels in found.of(pods, NOW).values()) == MOST_LABELS


def test_an_api_that_does_not_answer_costs_one_question_and_what_was_known_stays() -> None:
    api = _Api()
    api.labels["team", "a"] = {"app": "chat"}
    found = PodLabels(api.ask, [])
    found.of([("team", "a")], NOW)
    api.down = True
    pods = [("team", "a"), ("team", "b"), ("team", "c")]
    assert found.of(pods, NOW + AGAIN_NS) == {("team", "a"): {"app": "chat"}}
    assert "the API does not answer" in found.problem
    assert len(api.asked) == 2


class _Reply:
    """Implements of Client what is asked: one pod, none, or a refusal."""

    def __init__(self, answer: dict[str, object] | int) -> None:
        self.answer = answer

    def get(self, resource: object, name: str, namespace: str = "") -> dict[str, object]:
        if isinstance(self.answer, int):
            raise ApiError(self.answer, "No", "not you")
        return self.answer


def test_the_api_says_labels_or_that_a_pod_is_gone_or_what_is_missing() -> None:
    def ask(answer: dict[str, object] | int) -> object:
        client: Client = _Reply(answer)  # type: ignore[assignment]
        return asking(client)(("team", "a"))

    assert ask({"metadata": {"labels": {"app": "chat"}}}) == {"app": "chat"}
    assert ask({"metadata": {}}) == {}
    assert ask(404) is None
    with pytest.raises(InputError, match="labels of pods cannot be read"):
        ask(403)
