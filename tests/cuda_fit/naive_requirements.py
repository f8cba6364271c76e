"""NVIDIA_REQUIRE_* expressions the slow and plain way, for a node of which everything is known."""

from __future__ import annotations

import itertools


def holds(expression: str, cuda: str, driver: str, arch: str, brand: str) -> bool:
    """Any term (between spaces) whose rules (between commas) all hold. Raises ValueError for what is not a rule."""
    facts = {"cuda": cuda, "driver": driver, "arch": arch}
    answer = True
    for term in filter(None, expression.split(" ")):
        answer_of_term = None
        for rule in filter(None, term.split(",")):
            sign = next(sign for sign in ("!=", "<=", ">=", "=", "<", ">") if sign in rule)
            key, value = rule.split(sign)
            if key == "brand":
                answer_of_term = (brand.lower() == value.lower()) is (sign == "=")
            else:
                answer_of_term = sign in _signs(facts[key], value)
            if not answer_of_term:
                break
        if answer_of_term is None:
            return answer
        answer = answer_of_term
        if answer:
            return True
    return answer


def _signs(left: str, right: str) -> set[str]:
    """The operators that hold between two versions, found from the first number that differs."""
    for one, other in itertools.zip_longest(left.split("."), right.split("."), fillvalue="0"):
        if int(one) < int(other):
            return {"<", "<=", "!="}
        if int(one) > int(other):
            return {">", ">=", "!="}
    return {"=", "<=", ">="}
