"""The configurations of a cluster's GPU operator, kept current from its ConfigMaps and its ClusterPolicy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.objects.core import ConfigMap
from tonnage.objects.gpu_operator import ClusterPolicy
from tonnage.partitioning.configurations import read
from tonnage.partitioning.node_cuts import OWN, Configurations

OPERATOR_NAMESPACE = "gpu-operator"
"""Where the Helm chart of the GPU operator is installed as its documentation says it."""
Key = tuple[str, str]
"""(namespace, name)."""


class WatchedConfigurations:
    """``current``: those that nodes and NodePools may name. ``told`` is called when they are others than before.

    A file that its program would refuse changes nothing: ``problem`` says what is wrong with it."""

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        self.current: Configurations = OWN
        self.problem = ""
        self.told = told
        self._complaints: list[tuple[Ref, str]] = []
        self._maps: dict[Key, ConfigMap] = {}
        self._policies: dict[str, ClusterPolicy] = {}

    @property
    def policy(self) -> ClusterPolicy | None:
        """The ClusterPolicy that is followed: the first by name."""
        return next((one for _, one in sorted(self._policies.items())), None)

    def config_map(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        """A ConfigMap was added, changed or deleted."""
        one = new or old
        assert one is not None
        key = (one.namespace, one.name)
        if new is None:
            self._maps.pop(key, None)
        else:
            self._maps[key] = new
        if old is None or new is None or old.data != new.data:
            if new is not None:
                self._look(new)
            self._read()

    def complaints(self) -> list[tuple[Ref, str]]:
        """ConfigMaps that their programs would refuse, and why, since this was last asked."""
        found, self._complaints = self._complaints, []
        return found

    def _look(self, one: ConfigMap) -> None:
        try:
            read([one])
        except InputError as error:
            about = Ref("ConfigMap", one.name, one.namespace, one.metadata.uid)
            self._complaints.append((about, "; ".join(f"{p.where.field}: {p.message}" for p in error.problems)))

    def cluster_policy(self, old: ClusterPolicy | None, new: ClusterPolicy | None) -> None:
        """A ClusterPolicy was added, changed or deleted."""
        one = new or old
        assert one is not None
        if new is None:
            self._policies.pop(one.name, None)
        else:
            self._policies[one.name] = new
        if old is None or new is None or old.spec != new.spec:
            self._read()

    def _read(self) -> None:
        try:
            found = read_all(self._maps.values(), self._policies.values())
        except InputError as error:
            self.problem = error.problems[0].message
            return
        self.problem, self.current = "", found
        self.told()


def read_all(maps: Iterable[ConfigMap], policies: Iterable[ClusterPolicy]) -> Configurations:
    """The configurations in these, in the order of their names; without any, those that mig-parted brings along.

    Raises InputError for a file that its program would refuse."""
    known = sorted(maps, key=lambda one: (one.namespace, one.name))
    followed = sorted(policies, key=lambda one: one.name)[:1]
    if not known and not followed:
        return OWN
    found = read(known, followed)
    return found if followed else replace(found, complete=False)  # there may be others that nobody looks at
