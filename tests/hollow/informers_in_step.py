"""Informers without threads: what is in the embedded API's history is applied when it is asked for, in a told order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from tonnage.apiserver.api import Api
from tonnage.apiserver.store import Subscription
from tonnage.kube.informer import Informer, Informers
from tonnage.kube.reflector import Delta
from tonnage.kube.resources import Resource
from tonnage.kube.verbs import Client
from tonnage.objects.base import KubeObject

T = TypeVar("T", bound=KubeObject)


class InformersInStep(Informers):
    """Each resource's changes come in their order. ``late``, if given, decides how far each resource's watch is behind
    the others': every :meth:`pump` brings some changes of some resources. Without it, all that there is."""

    def __init__(self, client: Client, api: Api, late: random.Random | None = None) -> None:
        super().__init__(client, lambda: 0.0, random.Random(0))
        self._api, self._late = api, late
        self._watches: list[tuple[Informer[Any], Subscription, msgspec.json.Decoder[Any]]] = []

    def add(
        self,
        resource: Resource,
        type_: type[T],
        *,
        field_selector: str = "",
        label_selector: str = "",
        namespace: str = "",
        optional: bool = False,
    ) -> Informer[T]:
        assert not label_selector, "labels are not looked at here"
        informer: Informer[T] = Informer(resource, namespace, field_selector, "", optional=optional)
        informer.synced = True
        served = self._api.writes.kinds.find(resource.root, resource.plural)
        if served is not None:
            self._watches.append((informer, self._api.store.subscribe(served), msgspec.json.Decoder(type_)))
        else:
            assert optional, f"{resource.plural} is not served"
        return informer

    def pump(self, timeout_s: float) -> int:
        changes = 0
        while waiting := [watch for watch in self._watches if watch[1].pending()]:
            if self._late is not None and self._late.random() < 0.8:
                return changes
            informer, watch, decoder = waiting[0] if self._late is None else self._late.choice(waiting)
            change = watch.get(0)
            assert change is not None
            item = decoder.decode(change.now.raw)
            key = item.metadata.namespace, item.metadata.name
            if not informer.selects(*key):
                continue
            changes += informer.apply(Delta(key, item, change.version, change.type == "DELETED"))
        return changes

    @property
    def backlog(self) -> int:
        return sum(watch.pending() for _, watch, _ in self._watches)

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter([informer for informer, _, _ in self._watches])

    def stop(self, timeout_s: float = 1.0) -> bool:
        for _, watch, _ in self._watches:
            watch.close()
        return True
