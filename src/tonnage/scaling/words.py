"""Numbers of replicas in sentences."""

from __future__ import annotations


def replicas_text(count: int) -> str:
    """As in ``1 replica``, ``4 replicas``."""
    return f"{count} replica{'' if count == 1 else 's'}"
