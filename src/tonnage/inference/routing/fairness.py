"""A bounded queue of requests: strict priority, and within a priority tenants in turn by tokens.

Tenants of one priority are served by deficit round robin (Shreedhar and Varghese 1995): each turn adds a quantum of
tokens to a tenant's account, and a request is served when the account covers its predicted tokens.
"""

from __future__ import annotations

from collections import OrderedDict

from tonnage.inference.routing.types import RouteRequest


class _Tenant:
    __slots__ = ("account", "waiting")

    def __init__(self) -> None:
        self.account = 0
        self.waiting: OrderedDict[int, RouteRequest] = OrderedDict()


class FairQueue:
    """Requests that wait. ``quantum`` is in tokens; ``output_tokens`` is assumed where a request's are not known."""

    __slots__ = ("_bands", "_output_tokens", "_places", "_quantum")

    def __init__(self, quantum: int = 8_192, output_tokens: int = 256) -> None:
        if quantum < 1:
            raise ValueError(f"a quantum of {quantum} tokens serves nobody")
        self._quantum = quantum
        self._output_tokens = output_tokens
        self._bands: dict[int, OrderedDict[str, _Tenant]] = {}  # by priority; the tenant whose turn it is comes first
        self._places: dict[int, tuple[int, str]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._places

    def tokens(self, request: RouteRequest) -> int:
        """What a request is expected to cost."""
        output = request.expected_output
        return request.prompt_tokens + (self._output_tokens if output is None else output)

    def highest(self) -> int | None:
        """The highest priority that waits."""
        return max(self._bands, default=None)

    def add(self, request: RouteRequest, *, first: bool = False) -> None:
        """Queue a request behind, or before, those of its tenant. Raises ValueError for an id that waits."""
        if request.request_id in self._places:
            raise ValueError(f"request {request.request_id} waits already")
        band = self._bands.setdefault(request.priority, OrderedDict())
        tenant = band.get(request.tenant)
        if tenant is None:
            tenant = band[request.tenant] = _Tenant()
        tenant.waiting[request.request_id] = request
        if first:
            tenant.waiting.move_to_end(request.request_id, last=False)
        self._places[request.request_id] = (request.priority, request.tenant)

    def head(self) -> RouteRequest | None:
        """The request whose turn it is; it stays until it is removed with ``serve``."""
        if not self._bands:
            return None
        band = self._bands[max(self._bands)]
        turns = 0
        while True:
            name, tenant = next(iter(band.items()))
            request = next(iter(tenant.waiting.values()))
            if self.tokens(request) <= tenant.account:
                return request
            tenant.account += self._quantum
            if self.tokens(request) <= tenant.account:
                return request
            band.move_to_end(name)
            turns += 1
            if turns == len(band):
                self._skip_rounds(band)
                turns = 0

    def serve(self, request: RouteRequest) -> None:
        """Take out the head; its tokens are charged. Raises KeyError for a request that does not wait."""
        priority, name = self._places[request.request_id]
        self._bands[priority][name].account -= self.tokens(request)
        self.remove(request.request_id)

    def remove(self, request_id: int) -> RouteRequest | None:
        """Take out any request without charge; None if it does not wait."""
        place = self._places.pop(request_id, None)
        if place is None:
            return None
        priority, name = place
        band = self._bands[priority]
        tenant = band[name]
        request = tenant.waiting.pop(request_id)
        if not tenant.waiting:  # an account is not saved up while nothing waits
            del band[name]
            if not band:
                del self._bands[priority]
        return request

    def newest_below(self, priority: int) -> RouteRequest | None:
        """The last request of the lowest priority that waits, if that is below ``priority``; largest tenant first."""
        lowest = min(self._bands, default=None)
        if lowest is None or lowest >= priority:
            return None
        tenant = max(self._bands[lowest].values(), key=lambda tenant: len(tenant.waiting))
        return next(reversed(tenant.waiting.values()))

    def _skip_rounds(self, band: OrderedDict[str, _Tenant]) -> None:
        """Nobody could be served in a whole round: add up the rounds until somebody can, less the last."""
        rounds = min(
            -(-(self.tokens(next(iter(tenant.waiting.values()))) - tenant.account) // self._quantum)
            for tenant in band.values()
        )
        for tenant in band.values():
            tenant.account += self._quantum * max(0, rounds - 1)
