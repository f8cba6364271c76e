"""On which ports the containers of a pod listen."""

from __future__ import annotations

from typing import Any

import pytest

from tonnage.health.listening import listener, may_listen
from tonnage.health.setting import Pods
from tonnage.objects import core
from tonnage.objects.base import ObjectMeta
from tonnage.objects.needs import PodNeeds
from tonnage.objects.templates import PodTemplate

VLLM = "vllm/vllm-openai:v0.11.0"


def container(image: str = VLLM, **fields: Any) -> core.Container:
    return core.Container(name="c", image=image, **fields)


@pytest.mark.parametrize(
    ("made", "ports"),
    [
        (container(args=["--model=m"]), {8000}),
        (container(args=["--model=m", "--port", "9000"]), {9000}),
        (container(command=["vllm", "serve", "m", "--port=9000"]), {9000}),
        (container(command=["python3", "-m", "vllm.entrypoints.openai.api_server"], args=["--port=9000"]), {9000}),
        (container(command=["sh", "-c", "ray start --head --port=6379; vllm serve m --port 8080"]), {8080}),
        (container(command=["sh", "-c", "vllm serve a --port 8001 & vllm serve b --port 8002"]), {8001, 8002}),
        (container(args=["--model=m", "--port=$(PORT)"], env=[core.EnvVar(name="PORT", value="9000")]), {9000}),
        (container(args=["--model=m", "--port=$(PORT)"]), None),
        (container(args=["--model=m", "--config=/etc/vllm.yaml"]), None),
        (container(command=["sh", "-c", "ray start --address=head:6379 --block"]), None),
        (container(image="nginx"), None),
    ],
)
def test_vllm_listens_where_its_command_line_says(made: core.Container, ports: set[int] | None) -> None:
    found = listener(made)
    assert (None if found is None else found.ports) == ports


@pytest.mark.parametrize(
    ("others", "port", "may"),
    [
        ([], 8000, True),
        ([], 8080, False),
        ([container(image="nginx", ports=[core.ContainerPort(container_port=8080)])], 8080, True),
        ([container(image="proxy", args=["--listen=:8080"])], 8080, True),
        ([container(image="proxy", args=["--listen=:18080"])], 8080, False),
    ],
)
def test_a_port_is_served_by_vllm_or_by_who_declares_or_names_it(
    others: list[core.Container], port: int, may: bool
) -> None:
    spec = core.PodSpec(containers=[container(args=["--model=m"]), *others])
    pods = Pods(core.Pod(api_version="v1", kind="Pod", spec=spec), PodTemplate("spec", spec, PodNeeds(), ObjectMeta()))
    assert may_listen(pods, port) is may


def test_where_no_server_is_known_any_port_may_be_served() -> None:
    spec = core.PodSpec(containers=[container(image="nginx")])
    pods = Pods(core.Pod(api_version="v1", kind="Pod", spec=spec), PodTemplate("spec", spec, PodNeeds(), ObjectMeta()))
    assert may_listen(pods, 1234)
