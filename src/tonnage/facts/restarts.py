"""Which pods restart after a failure, per kind of workload and failure policy. Tables: ``data/restarts.csv``,
``data/backoffs.csv``."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import tables


class RestartRule(Struct, frozen=True):
    """One row. The first row of a kind whose policy, role and cause match decides; an empty set matches any.

    ``restarts``: container (of the failed pod, where it is), pod, group, job, task, all, none, index-fails, or fails.
    ``also``: ``others``, whose containers restart with it, or a role whose pods fail with it, each by its own row.
    ``counter`` is counted up, and compared with
    the workload's ``limit``: above it, reached (and at least 1), or when the limit is zero; then ``beyond`` holds:
    fails, or another rule. ``backoff``: a row of the other table.
    """

    rule: str
    kinds: frozenset[str]
    policies: frozenset[str]
    roles: frozenset[str]
    causes: frozenset[str]
    restarts: str
    also: str
    counter: str
    limit: str
    over: str
    beyond: str
    backoff: str
    sentence: str
    source: str

    def matches(self, kind: str, policy: str, role: str, cause: str) -> bool:
        """Whether the row is about this."""
        pairs = ((self.kinds, kind), (self.policies, policy), (self.roles, role), (self.causes, cause))
        return all(not allowed or value in allowed for allowed, value in pairs)


class Backoff(Struct, frozen=True):
    """``free`` restarts wait for nothing, the next one ``first_s`` seconds, each further one twice as long, at most
    ``most_s``."""

    name: str
    free: int
    first_s: int
    most_s: int
    source: str

    def delay_s(self, count: int) -> int:
        """Seconds before the restart with this number, counted from 1."""
        doublings = count - self.free - 1
        return 0 if doublings < 0 else min(self.most_s, self.first_s << min(doublings, 32))


@lru_cache(maxsize=1)
def rules() -> tuple[RestartRule, ...]:
    """All rows, in the order in which they are looked at."""
    return tuple(
        RestartRule(
            rule=row["rule"],
            kinds=_set(row["kind"]),
            policies=_set(row["policy"]),
            roles=_set(row["role"]),
            causes=_set(row["cause"]),
            **{name: row[name] for name in _PLAIN},
        )
        for row in tables.rows("restarts.csv")
    )


@lru_cache(maxsize=1)
def backoffs() -> dict[str, Backoff]:
    """Back-offs by name."""
    return {
        row["name"]: Backoff(row["name"], int(row["free"]), int(row["first_s"]), int(row["most_s"]), row["source"])
        for row in tables.rows("backoffs.csv")
    }


_PLAIN = ("restarts", "also", "counter", "limit", "over", "beyond", "backoff", "sentence", "source")


def _set(cell: str) -> frozenset[str]:
    return frozenset() if cell == "*" else frozenset(cell.split())
