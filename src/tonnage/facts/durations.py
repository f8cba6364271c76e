"""How long the steps in the life of a node and of a pod take. Table: ``data/durations.csv``."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import names, tables


class Durations(Struct, frozen=True):
    """Typical values; times in seconds, sizes in bytes. :func:`source` says where each comes from.

    A GPU node: ``launch_s`` from the request to a running instance, ``register_s`` until its Node object
    exists, ``ready_s`` until the kubelet is Ready, ``device_plugin_s`` until it offers its GPUs. A pod:
    pulling the image (compressed ``image_bytes`` of a vLLM image, ``small_image_bytes`` of others, unpacking
    included in ``image_pull_bytes_per_s``), ``container_start_s``, reading the weights from EBS
    (``ebs_bytes_per_s`` as gp3 comes, ``ebs_max_bytes_per_s`` as it can be bought) or from the page cache,
    and ``engine_start_s``: imports, compilation and graph capture, or ``engine_start_cached_s`` with a
    persistent compile cache, or ``engine_start_eager_s`` where nothing is compiled (--enforce-eager). A GPU that
    is repartitioned: ``mig_instance_s`` to make or destroy one instance,
    ``mig_mode_s`` to turn its MIG mode on or off, ``mig_plugin_s`` until the device plugin has registered again.
    A driver that the GPU operator upgrades: ``driver_upgrade_s`` from the start of its new pod until all is validated.
    ``jitter`` is a relative standard deviation.
    """

    launch_s: float
    register_s: float
    ready_s: float
    device_plugin_s: float
    image_bytes: float
    small_image_bytes: float
    image_pull_bytes_per_s: float
    container_start_s: float
    engine_start_s: float
    engine_start_cached_s: float
    ebs_bytes_per_s: float
    ebs_max_bytes_per_s: float
    page_cache_bytes_per_s: float
    spot_notice_s: float
    mig_instance_s: float
    mig_mode_s: float
    mig_plugin_s: float
    driver_upgrade_s: float
    jitter: float
    engine_start_eager_s: float


@lru_cache(maxsize=1)
def get() -> Durations:
    """The bundled durations."""
    return Durations(**{name: float(row["value"]) for name, row in _rows().items()})


def source(name: str) -> str:
    """Where the duration ``name`` comes from. Raises :class:`~tonnage.errors.InputError` if there is none."""
    return _row(name)["source"]


def unit(name: str) -> str:
    """Unit of the duration ``name``. Raises :class:`~tonnage.errors.InputError` if there is none."""
    return _row(name)["unit"]


def _row(name: str) -> dict[str, str]:
    row = _rows().get(name)
    if row is None:
        raise names.unknown("duration", name, _rows())
    return row


@lru_cache(maxsize=1)
def _rows() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in tables.rows("durations.csv")}
