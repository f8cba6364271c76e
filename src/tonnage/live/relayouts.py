"""GPUs of a cluster that are repartitioned, from the decision until the node says that it is so, or that it failed."""

from __future__ import annotations

import msgspec

from tonnage.control.partitioner import AGAIN
from tonnage.decisions import UNABLE, Applied, Outcome, Ref, Refused, Relayout, Stale
from tonnage.facts.labels import MIG_CONFIG
from tonnage.kube.clock import Clock
from tonnage.live.cutting import NodeWrite, failed
from tonnage.live.doubts import LATE_NS, SOON_NS, Doubts
from tonnage.live.effects import Effects, Unsure
from tonnage.live.feed import Changes
from tonnage.live.observed import Observed
from tonnage.live.recording import EventSink
from tonnage.partitioning.node_layouts import Order, Phase
from tonnage.units import NS_PER_S

NS_PER_MINUTE = 60 * NS_PER_S

LONG_NS = 20 * NS_PER_MINUTE
"""It waits for up to five minutes for each of four clients of the GPUs to end, then cuts, or reboots the node."""
_FAILED = "mig-manager could not change the MIG layout to"
_BY_HAND = "see its log, and label the node again"
PAUSE_NS = 5 * NS_PER_S
"""What could not be written is tried again after this long."""


class Relayouts:
    """The world's part of it: decisions become orders, and orders are followed."""

    def __init__(
        self, state: Observed, effects: Effects, clock: Clock, recorder: EventSink, doubts: Doubts, changes: Changes
    ) -> None:
        self._state, self._effects, self._clock = state, effects, clock
        self._recorder, self._doubts = recorder, doubts
        self._cutting, self._changes = state.cutting, changes
        self._decide_again: int | None = None
        self._again: dict[str, int] = {}  # by node: when to try again what could not be written
        self._told: dict[str, Order] = {}  # by node: the order of which something was told
        self._begun: dict[str, tuple[Order, int]] = {}  # by node: since when its order has been carried out

    def apply(self, decision: Relayout) -> Outcome:
        """Ask for it, as a layout of the whole node. It counts at once, whatever a watch shows."""
        wanted = self._cutting.wanted(self._state.fleet, decision)
        if isinstance(wanted, str):
            return Refused(wanted, UNABLE)
        node = replace_uid(decision.node, self._cutting.nodes[decision.node.name].metadata.uid)
        outcome = self._ask(node, wanted)
        if not isinstance(outcome, Applied):
            self._try_again(self._clock.now_ns() + PAUSE_NS)
        else:
            message = f"{MIG_CONFIG}={wanted.order.config}: {decision.summary()}"
            self._recorder.event(node, "Normal", "MigConfigChanged", message)
        return Stale(outcome.changed) if isinstance(outcome, Unsure) else outcome

    def look(self) -> None:
        """Let labels follow that are due, and turn back what has failed."""
        now = self._clock.now_ns()
        if self._decide_again is not None and self._decide_again <= now:
            self._decide_again = None
            self._changes.kinds.add(AGAIN)
        for name in self._cutting.open():
            order, at = self._cutting.order(name), self._cutting.phase(name)
            if order is not None and order.retry_ns > now:
                self._try_again(order.retry_ns)
            if order is None or self._again.get(name, 0) > now:
                continue
            if at is Phase.WAITING and order.due_ns <= now:
                self._write(name, NodeWrite(msgspec.structs.replace(order, due_ns=0), order, order.was))
            elif at is Phase.FAILED and order.was:
                if self._write(name, NodeWrite(failed(order, now), order, order.config)):
                    self._tell(name, "MigConfigFailed", f"{_FAILED} {order.config} says; back to {order.was}")
            elif at is Phase.FAILED:
                self._tell_once(name, order, "MigConfigFailed", f"{_FAILED} {order.config} says; {_BY_HAND}")
            elif at is Phase.CUTTING and now - self._since(name, order, now) > LONG_NS:
                why = f"mig-manager has not said for {LONG_NS // NS_PER_MINUTE} min that the MIG layout is"
                self._tell_once(name, order, "MigConfigPending", f"{why} {order.config} says; {_BY_HAND}")

    def _try_again(self, at_ns: int) -> None:
        """Decide again then, whatever changes until then."""
        self._decide_again = at_ns if self._decide_again is None else min(at_ns, self._decide_again)

    def _since(self, name: str, order: Order, now_ns: int) -> int:
        """Since when this order has been seen to be carried out."""
        known = self._begun.get(name)
        if known is None or known[0] != order:
            known = self._begun[name] = order, now_ns
        return known[1]

    def _node(self, name: str) -> Ref:
        return Ref("Node", name, uid=self._cutting.nodes[name].metadata.uid)

    def _write(self, name: str, wanted: NodeWrite) -> bool:
        done = isinstance(self._ask(self._node(name), wanted), Applied)
        if not done:
            self._again[name] = self._clock.now_ns() + PAUSE_NS
        return done

    def _ask(self, node: Ref, wanted: NodeWrite) -> Outcome:
        outcome = self._effects.cut(node, wanted)
        if not isinstance(outcome, Applied | Unsure):
            return outcome
        order = wanted.order
        self._cutting.assume(node.name, order)
        self._recut(node.name)
        pause = LATE_NS if isinstance(outcome, Applied) else SOON_NS
        self._doubts.add(("cut", node.name), lambda: self._there(node, order), lambda: None, pause_ns=pause)
        return outcome

    def _there(self, node: Ref, order: Order) -> bool | None:
        """Whether the order that is taken to be on the node is there; False too when a watch has shown it."""
        if not self._cutting.assumes(node.name, order):
            return False
        found = self._effects.ordered(node, order)
        if found is False:
            self._cutting.forget(node.name)
            self._recut(node.name)
        return found

    def _recut(self, name: str) -> None:
        node = self._cutting.nodes.get(name)
        if node is not None:
            self._state.feed.recut(node)

    def _tell_once(self, name: str, order: Order, reason: str, message: str) -> None:
        """Whoever may write here says it, once."""
        if self._told.get(name) != order and self._effects.ordered(self._node(name), order):
            self._told[name] = order
            self._tell(name, reason, message)

    def _tell(self, name: str, reason: str, message: str) -> None:
        self._recorder.event(self._node(name), "Warning", reason, message)


def replace_uid(node: Ref, uid: str) -> Ref:
    """The node as it is known here: by its uid, too."""
    return node if node.uid else msgspec.structs.replace(node, uid=uid)
