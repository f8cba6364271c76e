"""Images that are never pulled: what is not a name of one, and pull secrets that are of no use.

Sources: kubernetes/kubernetes pkg/kubelet/images/image_manager.go (applyDefaultImageTag), pkg/kubelet/kubelet_pods.go
(getPullSecretsForPod), pkg/credentialprovider/secrets, plugin/pkg/admission/serviceaccount (imagePullSecrets).
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.errors import Where
from tonnage.facts import images
from tonnage.health.blocker import CREATING, NO_EFFECT, Blocker
from tonnage.health.inventory import content
from tonnage.health.rules.naming import remedy
from tonnage.health.setting import Pods, Setting
from tonnage.objects.base import where

_PULL_TYPES = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
_NODE_CREDENTIALS = (".amazonaws.com", ".pkg.dev", ".azurecr.io", "gcr.io")
"""Registries of clouds, to which their nodes have credentials of their own."""


def names(setting: Setting) -> Iterator[Blocker]:
    """Names that stand for no image."""
    for pods in setting.pods:
        for field, container in pods.containers():
            if container.image and images.parse(container.image) is None:
                cause = "invalid reference format"
                if container.image != container.image.lower() and images.parse(container.image.lower()) is not None:
                    cause += ": repository name must be lowercase"
                yield Blocker(
                    "invalid-image-name",
                    CREATING,
                    pods.ref,
                    pods.where(f"{field}.image"),
                    f"{container.image!r} is not a name of an image ({cause}): it is never pulled",
                    "write it as [registry/]repository[:tag][@digest], without spaces and capitals",
                    "InvalidImageName",
                    f'Failed to apply default image tag "{container.image}": couldn\'t parse image name '
                    f'"{container.image}": {cause}',
                )


def pull_secrets(setting: Setting) -> Iterator[Blocker]:
    """Secrets for pulling that do not exist, or that are none for pulling."""
    for pods in setting.pods:
        listed = tuple(_listed(setting, pods))
        bad = [(name, at, why) for name, at in listed if (why := _unusable(setting, pods, name))]
        for name, at, (message, help_) in bad:
            yield _unpulled(pods, name, at, message, help_, some=len(bad) < len(listed))


def _listed(setting: Setting, pods: Pods) -> Iterator[tuple[str, Where]]:
    """(name, place) of each pull secret: the pod's own, else those of its ServiceAccount."""
    own = pods.template.needs.image_pull_secrets
    for index, one in enumerate(own):
        if one.name:
            yield one.name, pods.where(f"imagePullSecrets[{index}].name")
    if own:
        return
    account = setting.inventory.find("ServiceAccount", pods.spec.service_account_name or "default", pods.namespace)
    given = content(account).get("imagePullSecrets") if account is not None else None
    for index, entry in enumerate(given if isinstance(given, list) else ()):
        if account is not None and isinstance(entry, dict) and isinstance(entry.get("name"), str):
            yield entry["name"], where(account, f"imagePullSecrets[{index}].name")


def _unusable(setting: Setting, pods: Pods, name: str) -> tuple[str, str] | None:
    """(why, what to do) where a Secret is of no use for pulling."""
    inventory = setting.inventory
    if not inventory.has("Secret", name, pods.namespace):
        help_ = remedy(inventory, "Secret", name, pods.namespace)
        return f"Secret {name} does not exist in namespace {pods.namespace}", help_
    secret = inventory.find("Secret", name, pods.namespace)
    if secret is None or secret.kind != "Secret":
        return None
    type_ = content(secret).get("type", "Opaque")
    if type_ in _PULL_TYPES:
        return None
    help_ = "make it with kubectl create secret docker-registry, which has type kubernetes.io/dockerconfigjson"
    return f"Secret {name} has type {type_}, which holds no credentials of a registry", help_


def _unpulled(pods: Pods, name: str, at: Where, message: str, help_: str, *, some: bool) -> Blocker:
    """Images that anybody may pull are pulled all the same; the others are not."""
    private = next((one.image for _, one in pods.containers() if not _needs_none(one.image)), "")
    if not private:
        return Blocker(
            "image-pull-secret-unusable",
            NO_EFFECT,
            pods.ref,
            at,
            f"{message}: the images are pulled without credentials",
            f"{help_}; or leave imagePullSecrets out",
            "FailedToRetrieveImagePullSecret",
            f"Unable to retrieve some image pull secrets ({name}); attempting to pull the image may not succeed.",
            some,
        )
    return Blocker(
        "image-pull-secret-unusable",
        CREATING,
        pods.ref,
        at,
        f"{message}: {private} cannot be pulled from its registry",
        help_,
        "ImagePullBackOff",
        f'Back-off pulling image "{private}": ErrImagePull: failed to pull and unpack image "{private}": pull access '
        "denied, repository does not exist or may require authorization",
        some,
    )


def _needs_none(text: str) -> bool:
    """Whether the image is pulled without a Secret."""
    image = images.parse(text)
    return image is None or images.is_public(image) or image.registry.endswith(_NODE_CREDENTIALS)
