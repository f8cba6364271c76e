"""What an API serves: the kinds that it has from the start, and those that CustomResourceDefinitions add."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from tonnage.apiserver import definitions
from tonnage.apiserver.store import Store
from tonnage.kube.resources import SERVED, Resource

JsonObject: TypeAlias = dict[str, Any]


class Kinds:
    """Read by many threads, changed by the one that holds the store's lock: each change makes new tables."""

    def __init__(self, built_in: Iterable[Resource] = SERVED) -> None:
        self._built_in = tuple(built_in)
        self._set(self._built_in)

    def _set(self, served: Iterable[Resource]) -> None:
        self.served = tuple(served)
        self._by_path = {(one.root, one.plural): one for one in self.served}
        self.roots = frozenset(one.root for one in self.served)

    def find(self, root: str, plural: str) -> Resource | None:
        """The resource at ``/apis/group/version`` and its name there."""
        return self._by_path.get((root, plural))

    def define(self, definition: JsonObject, store: Store) -> None:
        """Serve the kind from now on; one that is served from the start stays as it is."""
        resource = definitions.resource_of(definition)
        known = self._named(resource)
        if known is not None and known in self._built_in:
            return
        store.serve(resource)
        self._set((*(one for one in self.served if one != resource), resource))

    def withdraw(self, definition: JsonObject, store: Store) -> None:
        """Serve the kind no more; its objects are gone."""
        resource = definitions.resource_of(definition)
        if resource in self.served and resource not in self._built_in:
            self._set(one for one in self.served if one != resource)
            store.drop(resource)

    def _named(self, resource: Resource) -> Resource | None:
        """What is served under the group and name of a resource, in whatever version."""
        same = (one for one in self.served if (one.group, one.plural) == (resource.group, resource.plural))
        return next(same, None)
