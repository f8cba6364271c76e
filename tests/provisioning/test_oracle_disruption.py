"""Disruption beside the real Karpenter's disruption controller, on cases drawn by seeds: a sample in `make e2e`, all of them in
`make e2e-long`.

Karpenter takes any of several equally good candidates and domains, and has NodePools take turns in any order. A case
whose answers differ is asked again a few times: the emulator has to give one of the answers that Karpenter gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sampling
from disruption_cases import DisruptionCase, asked_of_karpenter, conditions, draw_disruption, round_of
from plan_differences import answers, read_requirements, written_requirements

from tonnage.provisioning import consolidation
from tonnage.provisioning.consolidation import DisruptionProposal, Round

pytestmark = pytest.mark.e2e

CASES = range(1500)
SAMPLED = 100
AGAIN = 40
METHODS = {
    consolidation.EMPTINESS: "empty",
    consolidation.DRIFT: "",
    consolidation.MULTI_NODE: "multi",
    consolidation.SINGLE_NODE: "single",
}
"""The methods as Karpenter calls them."""
Answer = tuple[str, list[str], list[Any]]


def ask(program: Path, cases: Sequence[DisruptionCase]) -> list[dict[str, Any]]:
    """The answers, one a case."""
    found = answers(program, map(asked_of_karpenter, cases))
    assert not [one for one in found if "failed" in one]
    return [one["ordered"] for one in found]


def compare(case: DisruptionCase, answer: dict[str, Any]) -> list[str]:
    """How the emulator's answer differs from the real one."""
    one = round_of(case)
    found = []
    if (own := conditions(case, one)) != answer["conditions"]:
        found.append(f"conditions {own} here, {answer['conditions']} there")
    for reason, allowed in answer["allowed"].items():
        mine = {name: one.budget(reason)[name] for name in allowed}
        if any(min(mine[name], 1000) != min(most, 1000) for name, most in allowed.items()):
            found.append(f"for {reason} {mine} may go here, {allowed} there")
    if (here := mine_of(case)) != (there := theirs_of(answer)):
        found.append(f"{here} here, {there} there")
    return found


def mine_of(case: DisruptionCase) -> Answer:
    """The emulator's method, nodes and new NodeClaims. A command that is looked at again and does not hold is given up;
    the next method is then asked at once, of the cluster as it has become."""
    one = round_of(case)
    for ask_next in (Round.emptiness, Round.drift, Round.multi_node, Round.single_node):
        found = ask_next(one)
        if found is None:
            continue
        going = [each.node.ref for each in found.going]
        if case.meanwhile and found.method != consolidation.DRIFT:
            command = one.command(found)
            assert command is not None, f"case {case.seed}: nobody sells {found.claims}"
            one = round_of(case, later=True)
            held = one.still(command)
            if held is None:
                continue
            going = list(held.nodes)
        return METHODS[found.method], sorted(ref.name for ref in going), _claims(found)
    return "", [], []


def _claims(found: DisruptionProposal) -> list[Any]:
    return sorted(
        (
            each.load.template.name,
            tuple(name for name, left in zip(each.load.market.catalogue.names, each.load.types, strict=True) if left),
            tuple(sorted(read_requirements(each.load.requirements))),
        )
        for each in found.claims
    )


def theirs_of(answer: dict[str, Any]) -> Answer:
    """The real one's."""
    claims = [
        (each["nodePool"], tuple(each["types"]), tuple(sorted(written_requirements(each["requirements"]))))
        for each in answer["claims"]
    ]
    return answer["method"], sorted(answer["nodes"]), sorted(claims)


def test_what_goes_is_what_karpenter_takes(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = sampling.some("disruption cases", CASES, SAMPLED)
    left: dict[int, list[str]] = {}
    kinds: Counter[str] = Counter()
    cases = {seed: draw_disruption(seed) for seed in seeds}
    for case, answer in zip(cases.values(), ask(program, list(cases.values())), strict=True):
        kinds[f"{answer['reason']} {answer['method']}".strip() or "nothing"] += 1
        if found := compare(case, answer):
            left[case.seed] = found
    at_once = len(seeds) - len(left)
    for _ in range(AGAIN):
        again = [draw_disruption(seed) for seed in left]
        if not again:
            break
        for case, answer in zip(again, ask(program, again), strict=True):
            if not compare(case, answer):
                del left[case.seed]
    with capsys.disabled():
        print(f"\n{len(seeds)} disruption cases, {dict(kinds)}; {at_once} alike at once, {len(left)} never")
    assert not left, "\n".join(f"case {seed}: {'; '.join(found)[:1500]}" for seed, found in sorted(left.items())[:5])
    assert min(kinds["Empty empty"], kinds["Drifted"], kinds["Underutilized single"], kinds["Underutilized multi"]) > 0
