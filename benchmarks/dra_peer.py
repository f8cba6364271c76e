"""Google's CEL evaluator in C++ (cel-expr-python), for what it has in common with the dialect of Kubernetes.

It has no quantities, no versions and no ``includes``, and an unknown domain is an error to it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from tonnage.cel.device import Device
from tonnage.cel.values import Semver


def installed() -> bool:
    """Whether it is there (``make peers``)."""
    return importlib.util.find_spec("cel_expr_python") is not None


def compiled(text: str) -> Callable[[dict[str, Any]], Any]:
    """The value of an expression for what :func:`data` makes. Raises RuntimeError or ValueError for what it refuses; an
    error of the evaluation is returned as text."""
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

    extensions = [ext_strings.ExtStrings(), ext_optional.ExtOptional(), ext_bindings.ExtBindings()]
    env = cel.NewEnv(variables={"device": cel.Type.DYN}, extensions=extensions)
    expression = env.compile(text)

    def value(on: dict[str, Any]) -> Any:
        found = expression.eval(data=on)
        return str(found.value()) if found.type() == cel.Type.ERROR else found.plain_value()

    return value


def data(device: Device) -> dict[str, Any]:
    """A device as its variable."""
    return {
        "device": {
            "driver": device.driver,
            "attributes": {
                domain: {name: value.text if isinstance(value, Semver) else value for name, value in held.items()}
                for domain, held in device.attributes.items()
            },
            "allowMultipleAllocations": device.allow_multiple_allocations,
        }
    }
