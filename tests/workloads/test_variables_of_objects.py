"""Variables that ConfigMaps and Secrets give a container, and the zone of a volume that is made at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tonnage.inference.servers.command_lines import environment
from tonnage.objects import load
from tonnage.objects.templates import templates
from tonnage.workloads.variables import ANY, Variables
from tonnage.workloads.volumes.claims import provisioned_in

OBJECTS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: engine, namespace: ml}
data: {MODEL: a/b, SIZE: "1", PRICE: $(SIZE)}
---
apiVersion: v1
kind: Secret
metadata: {name: token, namespace: ml}
data: {key: c2VjcmV0LXZhbHVl}
stringData: {plain: word}
---
apiVersion: v1
kind: Pod
metadata: {name: x, namespace: ml}
spec:
  containers: [CONTAINER]
"""


def given(folder: Path, container: dict[str, Any]) -> tuple[dict[str, str], Variables]:
    file = folder / "x.yaml"
    file.write_text(OBJECTS.replace("CONTAINER", json.dumps({"name": "c", "image": "x", **container})))
    objects = load.read([file]).objects
    variables = Variables(objects)
    template = next(templates(objects[-1]))
    return environment(variables.filled("ml", template.spec, template.needs).containers[0]), variables


def test_all_keys_come_first_and_own_variables_count_last(tmp_path: Path) -> None:
    found, _ = given(
        tmp_path,
        {
            "envFrom": [{"configMapRef": {"name": "engine"}}, {"prefix": "T_", "secretRef": {"name": "token"}}],
            "env": [{"name": "SIZE", "value": "2"}, {"name": "BOTH", "value": "$(MODEL)-$(SIZE)"}],
        },
    )
    wanted = {"MODEL": "a/b", "SIZE": "2", "BOTH": "a/b-2", "T_key": "secret-value", "T_plain": "word"}
    assert found == {**wanted, "PRICE": "$(SIZE)"}  # what comes from an object is taken literally


def test_a_key_of_an_object_is_a_variable_and_what_is_a_secret_is_hidden(tmp_path: Path) -> None:
    named = {"name": "K", "valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}}
    found, variables = given(tmp_path, {"env": [named]})
    assert found == {"K": "secret-value"}
    assert variables.hidden("it is secret-value here") == "it is *** here"


def test_of_an_object_that_is_not_here_any_variable_may_come(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    container = {"name": "c", "image": "x", "envFrom": [{"configMapRef": {"name": "other", "optional": True}}]}
    file.write_text(OBJECTS.replace("CONTAINER", json.dumps(container)))
    objects = load.read([file]).objects
    template = next(templates(objects[-1]))
    filled = Variables(objects).filled("ml", template.spec, template.needs)
    assert [one.name for one in filled.containers[0].env] == [ANY]


def test_words_that_double_without_end_are_left_as_they_are(tmp_path: Path) -> None:
    doubling = [{"name": "V0", "value": "x" * 100}]
    doubling += [{"name": f"V{n}", "value": f"$(V{n - 1})$(V{n - 1})"} for n in range(1, 200)]
    found, _ = given(tmp_path, {"env": doubling})
    assert max(map(len, found.values())) <= 128 * 1024


def test_claims_of_a_stateful_set_go_round_the_zones() -> None:
    zones = ["us-east-1b", "us-east-1c", "us-east-1a"]
    first = [provisioned_in(f"data-vllm-{n}", zones) for n in range(4)]
    assert first == ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1a"]
    assert [provisioned_in(f"logs-vllm-{n}", zones) for n in range(4)] == first  # the pod reaches both
    assert provisioned_in("model-cache", zones[:1]) == "us-east-1b"
    assert provisioned_in("model-cache", ()) == ""


def test_a_models_configuration_among_the_files_gives_its_shape(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    }
    folder = tmp_path / "acme" / "house-model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "x.yaml").write_text(OBJECTS.replace("CONTAINER", '{"name": "c", "image": "x"}'))
    found = load.read([tmp_path])
    assert len(found.objects) == 3
    shape = found.models["acme/house-model"]
    assert (shape.layers, shape.kv_heads, shape.context_tokens) == (22, 4, 2048)
