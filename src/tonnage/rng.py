"""Random numbers from named streams: what one consumer draws never shifts what another one gets.

A stream's generator is seeded from the SHA-256 digest of the run's seed and the stream's name, so a new
service, a new fault or a changed order of calls leaves every other stream's numbers as they were.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


class Streams:
    """The named random streams of one run.

    A name always answers with the same generator, which goes on where it stopped. Two :class:`Streams` of
    one seed give equal numbers.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._numpy: dict[str, np.random.Generator] = {}
        self._python: dict[str, random.Random] = {}

    def get(self, name: str) -> np.random.Generator:
        """The numpy generator (PCG64) of stream ``name``, for arrays of numbers."""
        stream = self._numpy.get(name)
        if stream is None:
            import numpy as np

            stream = self._numpy[name] = np.random.Generator(np.random.PCG64(self._entropy(name)))
        return stream

    def python(self, name: str) -> random.Random:
        """The standard library's generator of stream ``name``, for single numbers."""
        stream = self._python.get(name)
        if stream is None:
            stream = self._python[name] = random.Random(self._entropy(f"python/{name}"))
        return stream

    def _entropy(self, name: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{name}".encode()).digest(), "big")
