"""Images for another architecture than the nodes that the pods come to."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.facts import images
from tonnage.facts.labels import ARCH, BETA_ARCH, INSTANCE_TYPE
from tonnage.health.blocker import CRASHING, Blocker
from tonnage.health.setting import Pods, Setting
from tonnage.objects import karpenter
from tonnage.objects.selectors import HARD_EFFECTS, untolerated
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.pods import PodShape, strict_requirements
from tonnage.provisioning.requirements import Requirements
from tonnage.provisioning.template import pool_requirements

_BOTH = frozenset(images.ARCHITECTURES)


def architectures(setting: Setting) -> Iterator[Blocker]:
    """Images that are for none of the architectures of the nodes that the pods may come to, or not for all of them."""
    for pods in setting.pods:
        shape = PodShape.of(pods.spec, pods.template.metadata.annotations)
        asked = frozenset[str]().union(*(_of(one, shape, setting.catalogue) for one in strict_requirements(shape)))
        offered = _of_nodes(setting, pods) | _of_pools(setting, pods, shape)
        possible = (offered & asked) if offered else asked
        if possible and (offered or possible != _BOTH):
            yield from _foreign(pods, possible)


def _foreign(pods: Pods, possible: frozenset[str]) -> Iterator[Blocker]:
    for field, container in pods.containers():
        image = images.parse(container.image)
        made_for = images.architectures(image) if image is not None else frozenset[str]()
        wrong = " or ".join(sorted(possible - made_for))
        if not made_for or not wrong:
            continue
        right, some = " and ".join(sorted(made_for)), bool(possible & made_for)
        yield Blocker(
            "image-wrong-architecture",
            CRASHING,
            pods.ref,
            pods.where(_selecting(pods) or f"{field}.image"),
            f"image {container.image} is for {right}, and these pods' feasible nodes {'may be' if some else 'are'} "
            f"{wrong}: they cannot run its program",
            f"use an image for {wrong}, or select nodes with {ARCH}: {right}",
            "CrashLoopBackOff",
            "exec format error",
            some,
        )


def _selecting(pods: Pods) -> str:
    """The field by which the pods ask for an architecture."""
    for key in (ARCH, BETA_ARCH, INSTANCE_TYPE):
        if key in pods.spec.node_selector:
            return f"nodeSelector.{key}"
    required = pods.spec.affinity.node_affinity if pods.spec.affinity else None
    terms = required.required_during_scheduling_ignored_during_execution if required else None
    for t, term in enumerate(terms.node_selector_terms if terms else ()):
        for e, one in enumerate(term.match_expressions):
            if labels.normalise(one.key) in (ARCH, INSTANCE_TYPE):
                return (
                    "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution."
                    f"nodeSelectorTerms[{t}].matchExpressions[{e}]"
                )
    return ""


def _of(wanted: Requirements, shape: PodShape, catalogue: Catalogue) -> frozenset[str]:
    """The architectures of the instance types that meet the requirements and hold one such pod."""
    large = (catalogue.allocatable >= catalogue.amounts({**shape.requests, "ephemeral-storage": 0})).all(axis=1)
    known = catalogue.select(wanted) & large
    return frozenset(
        name
        for name in images.ARCHITECTURES
        if wanted.allows(ARCH, name) and (known & catalogue.select(Requirements.of_labels({ARCH: name}))).any()
    )


def _of_nodes(setting: Setting, pods: Pods) -> frozenset[str]:
    taking = setting.landing.admitting(pods.spec, pods.template.metadata.annotations)
    return frozenset(node.labels[ARCH] for node in taking if ARCH in node.labels)


def _of_pools(setting: Setting, pods: Pods, shape: PodShape) -> frozenset[str]:
    """Those of the nodes that NodePools would make for the pods."""
    found = frozenset[str]()
    for pool in setting.objects:
        if not isinstance(pool, karpenter.NodePool):
            continue
        if untolerated(pool.spec.template.spec.taints, shape.tolerations, HARD_EFFECTS) is None:
            own = pool_requirements(pool)
            for wanted in strict_requirements(shape):
                if own.compatible(wanted, labels.well_known()):
                    found |= _of(own.merged(wanted), shape, setting.catalogue)
    return found
