"""The labels of namespaces, by which rules about other pods select them (``namespaceSelector``)."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.facts.labels import NAMESPACE_NAME


class NamespaceLabels:
    """Labels by namespace. One of which nothing is known is there too, without labels of its own. ``revision`` counts
    the changes."""

    def __init__(self) -> None:
        self.revision = 0
        self._labels: dict[str, Mapping[str, str]] = {}

    def put(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """The namespace has these labels now; None: it is gone. Whether that is another answer than before."""
        own = {key: value for key, value in (labels or {}).items() if key != NAMESPACE_NAME}
        if self._labels.get(name, {}) == own:
            return False
        if own:
            self._labels[name] = own
        else:
            del self._labels[name]
        self.revision += 1
        return True

    def labels(self, name: str) -> dict[str, str]:
        """The labels of the namespace."""
        return {**self._labels.get(name, {}), NAMESPACE_NAME: name}
