"""The environment of containers with what ConfigMaps and Secrets give it, as far as these are among the objects.

Source: kubernetes/kubernetes v1.36 pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables): ``envFrom`` comes first and
in order, ``env`` after it, the last one of a name counts; what comes from an object is taken literally.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tonnage.objects import core
from tonnage.objects.base import DEFAULT_NAMESPACE, KubeObject, Unknown
from tonnage.objects.needs import ContainerNeeds, Named, PodNeeds, Variable

ANY = "*"
"""The name of a variable without a value, where some come from an object that is not here: any may be set."""
HIDDEN = "***"
"""What is shown in place of a Secret's value."""
_LEAST = 4
"""Characters of a value from which on it is hidden: what is shorter stands in too many words."""
_NOTHING: Mapping[str, str] = {}


class Variables:
    """Answers for one set of objects. Values of Secrets that were given to a container are kept, to be hidden."""

    def __init__(self, objects: Iterable[KubeObject]) -> None:
        self._data: dict[tuple[str, str, str], Mapping[str, str]] = {}
        self._secret: set[str] = set()
        for one in objects:
            if isinstance(one, core.ConfigMap):
                self._data.setdefault(("ConfigMap", one.namespace or DEFAULT_NAMESPACE, one.name), one.data)
            elif isinstance(one, Unknown) and (one.api_version, one.kind) == ("v1", "Secret"):
                self._data.setdefault(("Secret", one.namespace or DEFAULT_NAMESPACE, one.name), _secret(one))

    def filled(self, namespace: str, spec: core.PodSpec, needs: PodNeeds) -> core.PodSpec:
        """The spec with the values that are known of its variables; the same object where none comes from elsewhere.
        ``needs``: the same pod's."""
        containers = self._all(namespace, spec.containers, needs.containers)
        init = self._all(namespace, spec.init_containers, needs.init_containers)
        if containers is spec.containers and init is spec.init_containers:
            return spec
        return msgspec.structs.replace(spec, containers=containers, init_containers=init)

    def hidden(self, text: str) -> str:
        """The text without values of Secrets that went into a container's environment."""
        for value in sorted(self._secret, key=len, reverse=True):
            text = text.replace(value, HIDDEN)
        return text

    def _all(
        self, namespace: str, containers: list[core.Container], needs: Sequence[ContainerNeeds]
    ) -> list[core.Container]:
        made = [self._one(namespace, *pair) for pair in zip(containers, needs, strict=False)]
        return made if any(new is not old for new, old in zip(made, containers, strict=False)) else containers

    def _one(self, namespace: str, container: core.Container, needs: ContainerNeeds) -> core.Container:
        given = [core.EnvVar(name=key, value=value) for key, value in self._from(namespace, needs)]
        own = [self._valued(namespace, *pair) for pair in zip(container.env, needs.env, strict=False)]
        if not given and all(new is old for new, old in zip(own, container.env, strict=False)):
            return container
        return msgspec.structs.replace(container, env=[*given, *own])

    def _from(self, namespace: str, needs: ContainerNeeds) -> Iterator[tuple[str, str]]:
        for one in needs.env_from:
            for kind, ref in (("ConfigMap", one.config_map_ref), ("Secret", one.secret_ref)):
                if ref is not None and (kind, namespace, ref.name) not in self._data:
                    yield ANY, ""
                for key, value in self._of(kind, namespace, ref).items():
                    yield one.prefix + key, self._literal(kind, value)

    def _valued(self, namespace: str, variable: core.EnvVar, needs: Variable) -> core.EnvVar:
        source = needs.value_from
        refs = (("ConfigMap", source.config_map_key_ref), ("Secret", source.secret_key_ref)) if source else ()
        for kind, ref in refs:
            value = self._of(kind, namespace, ref).get(ref.key) if ref is not None else None
            if value is not None:
                return msgspec.structs.replace(variable, value=self._literal(kind, value))
        return variable

    def _of(self, kind: str, namespace: str, ref: Named | None) -> Mapping[str, str]:
        return self._data.get((kind, namespace, ref.name), _NOTHING) if ref is not None else _NOTHING

    def _literal(self, kind: str, value: str) -> str:
        """The value as one that nothing is put into any more."""
        if kind == "Secret" and len(value) >= _LEAST:
            self._secret.add(value)
        return value.replace("$", "$$")


def unseen(spec: core.PodSpec) -> core.PodSpec:
    """The spec of a pod whose ConfigMaps and Secrets cannot be looked at: any variable may be set."""
    containers = [msgspec.structs.replace(one, env=[*one.env, core.EnvVar(name=ANY)]) for one in spec.containers]
    return msgspec.structs.replace(spec, containers=containers)


def _secret(one: Unknown) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for part, decode in (("data", _decoded), ("stringData", str)):
        listed = one.content.get(part)
        for key, value in listed.items() if isinstance(listed, dict) else ():
            if isinstance(value, str) and (text := decode(value)) is not None:
                found[str(key)] = text
    return found


def _decoded(value: str) -> str | None:
    try:
        return base64.b64decode(value, validate=True).decode()
    except ValueError:  # no base64, or no text
        return None
