"""What is left of a device, priced by the pods that come: small programs whose duals are known."""

from __future__ import annotations

import pytest
from value_cases import MODEL, share

from builders import fleet, node, pod
from tonnage.scheduling.value.duals import price
from tonnage.scheduling.value.mix import MOST_KINDS, Mix, NodeKind, TypicalPod, kinds_of
from tonnage.scheduling.value.worth import cores_per_device, priced, scarcity

NODE = NodeKind(devices=1, cpu=64_000, memory=1 << 20, nodes=1, admits=(True,))


def _ask(milli: int, weight: int, count: int = 1, cpu: int = 1000) -> TypicalPod:
    return TypicalPod(cpu, 1, count, milli, 0, weight)


def test_halves_are_worth_halves_and_less_than_a_half_nothing() -> None:
    prices = price([_ask(500, 3)], [NODE])
    assert prices is not None
    assert [prices.worth(0, milli) for milli in (0, 490, 500, 990, 1000)] == pytest.approx([0, 0, 500, 500, 1000])


def test_the_remainder_beside_a_large_share_is_worth_nothing_where_no_pod_fits_into_it() -> None:
    """Nothing fits beside 600: one a device. A pod that must be served and is not costs what it asks for once more, and
    its core of 64 at a device for all of them: room for one is worth 600 + 600 + 1000 / 64."""
    prices = price([_ask(600, 2)], [NODE])
    assert prices is not None
    assert [prices.worth(0, milli) for milli in (400, 600, 1000)] == pytest.approx([0, 1215.625, 1215.625])


def test_shares_that_fill_a_device_together_share_its_worth() -> None:
    """700 and 300 in equal numbers: every device full, so a device is worth 1000 and so are the two together."""
    prices = price([_ask(700, 1), _ask(300, 1)], [NODE])
    assert prices is not None
    assert prices.worth(0, 1000) == pytest.approx(prices.worth(0, 700) + prices.worth(0, 300))
    assert prices.worth(0, 1000) == pytest.approx(1000)
    assert prices.worth(0, 200) == 0


def test_cores_have_a_price_only_where_they_are_short() -> None:
    rich = price([_ask(1000, 1, cpu=1000)], [NODE])
    assert rich is not None
    assert rich.cpu[0] == 0
    poor = price([_ask(1000, 2, cpu=64_000)], [NodeKind(2, 64_000, 1 << 20, 1, (True,))])
    assert poor is not None
    assert poor.cpu[0] > 0
    assert poor.worth(0, 1000) == 0


def test_a_mix_without_devices_leaves_devices_worth_what_they_are() -> None:
    worth = priced(Mix((TypicalPod(1000, 1, 0, 0, 0, 5),)), [NODE])
    assert [worth.of(0, (free,)) for free in (0, 100, 1000)] == [0, 100, 1000]
    with pytest.raises(ValueError, match="no devices"):
        price([TypicalPod(1000, 1, 0, 0, 0, 5)], [NODE])


def test_cores_beside_a_device_count_pods_without_devices_that_find_no_other_node() -> None:
    asks = (_ask(1000, 1, cpu=4_000), TypicalPod(6_000, 1, 0, 0, 0, 1))
    alone = [NodeKind(1, 16_000, 1 << 20, 1, (True,))]
    assert cores_per_device(Mix(asks), alone) == 10_000
    beside = [*alone, NodeKind(0, 5_000, 1 << 20, 1, (True,))]
    assert cores_per_device(Mix(asks), beside) == 5_000


def test_a_model_is_as_scarce_as_the_pods_that_name_it_want_of_it() -> None:
    nodes = [node(f"a{i}", gpus=1, labels={MODEL: "A"}) for i in range(2)] + [node("b", gpus=2, labels={MODEL: "B"})]
    tied = [pod(f"t{i}", gpus=1, nodeSelector={MODEL: "A"}) for i in range(1)]
    made = fleet(*nodes, pods=[*tied, pod("free", gpus=1)])
    mix = Mix.of(made)
    kind_of, kinds = kinds_of(made, mix.rules)
    scarce = scarcity(mix, kinds)
    by_name = {made.node(row).spec.name: scarce[kind_of[row]] for row in made.node_rows()}
    assert by_name == {"a0": 1.0, "a1": 1.0, "b": 0.0}


def test_many_sizes_of_nodes_become_few_kinds() -> None:
    made = fleet(*(node(f"n{i}", cpu=8 + i / 10, gpus=1) for i in range(3 * MOST_KINDS)), pods=[pod("p", gpus=1)])
    _, kinds = kinds_of(made, Mix.of(made).rules)
    assert 1 < len(kinds) <= MOST_KINDS
    assert sum(kind.nodes for kind in kinds) == 3 * MOST_KINDS


def test_the_mix_leaves_out_pods_that_name_their_node_and_counts_equal_asks_together() -> None:
    made = fleet(node("a", gpus=1), pods=[share("x", 500), share("y", 500), pod("z", nodeName="a")])
    (ask,) = Mix.of(made).asks
    assert (ask.count, ask.milli, ask.weight) == (1, 500, 2)
