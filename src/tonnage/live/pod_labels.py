"""Labels of single pods from the API, for the metrics of their GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tonnage.errors import InputError
from tonnage.kube.resources import PODS
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client


def asking(client: Client) -> Callable[[tuple[str, str]], Mapping[str, str] | None]:
    """What tells the labels of a pod (namespace, name), None where it is gone; it raises InputError where the API does
    not answer, or may not be asked."""

    def ask(pod: tuple[str, str]) -> Mapping[str, str] | None:
        namespace, name = pod
        try:
            meta = client.get(PODS, name, namespace)["metadata"]
        except ApiError as error:
            if error.code == 404:
                return None
            raise _refused(error) from error
        except ClientError as error:
            raise _refused(error) from error
        return {str(key): str(value) for key, value in (meta.get("labels") or {}).items()}

    return ask


def _refused(error: ClientError) -> InputError:
    hint = "it needs the right to get pods; `tonnage render agent` gives it where the ClusterPolicy has enablePodLabels"
    return InputError.at(f"labels of pods cannot be read: {error}", hint=hint)
