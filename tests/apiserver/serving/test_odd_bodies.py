"""Bodies that no client should send are refused, and the server goes on."""

from __future__ import annotations

import msgspec
import pytest

from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.kube.resources import CONFIG_MAPS, PODS
from tonnage.kube.transport import MERGE_PATCH, ApiError
from tonnage.kube.verbs import Client


def _client() -> Client:
    return Client(InProcess(Api()))


@pytest.mark.parametrize(
    "spec", [{"containers": [None]}, {"containers": [{"name": "a", "image": "a", "ports": [None]}]}]
)
def test_null_in_a_list_is_an_object_without_fields(spec: object) -> None:
    with pytest.raises(ApiError) as refused:
        _client().create(PODS, {"metadata": {"name": "odd"}, "spec": spec}, "default")
    assert refused.value.code == 422


def test_a_body_that_is_nested_too_deeply_is_a_bad_request() -> None:
    client = _client()
    client.create(CONFIG_MAPS, {"metadata": {"name": "one"}}, "default")
    deep = b'{"data":' * 5_000 + b"{}" + b"}" * 5_000
    with pytest.raises(ApiError) as refused:
        client.patch(CONFIG_MAPS, "one", msgspec.Raw(deep), "default", content_type=MERGE_PATCH)
    assert refused.value.code == 400
    assert client.get(CONFIG_MAPS, "one", "default")["metadata"]["name"] == "one"
