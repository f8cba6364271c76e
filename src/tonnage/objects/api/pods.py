"""What kube-apiserver refuses of pods and pod templates.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, TypeAlias

from tonnage.objects.api.containers import containers, pod_resources, resources
from tonnage.objects.api.errors import (
    INT32_MAX,
    FieldError,
    address,
    duplicate,
    forbidden,
    invalid_value,
    label_faults,
    labels,
    one_of,
    placed,
    qualified_faults,
    required,
    said,
    show,
    subdomain_faults,
    within,
)
from tonnage.objects.api.placing import affinity, spread, tolerations
from tonnage.objects.api.security import of_system, pod_security
from tonnage.objects.api.volumes import volumes

JsonObject: TypeAlias = dict[str, Any]

_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_POLICIES = ("Never", "PreemptLowerPriority")
_SYSTEMS = ("linux", "windows")
_MOST_SERVERS, _MOST_SEARCHES, _LONGEST_SEARCHES = 3, 32, 2048
_SEARCH_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SEARCH = rf"{_SEARCH_LABEL}(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_SEARCH_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    f"start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SEARCH}')"
)


def pod_spec(
    path: str,
    spec: JsonObject,
    *,
    restarts: tuple[str, ...] = ("Always", "OnFailure", "Never"),
    claimed: frozenset[str] = frozenset(),
) -> list[FieldError]:
    """Everything below a pod's or a template's ``spec``, which stands at ``path``. ``restarts``: policies allowed;
    ``claimed``: volumes that a StatefulSet adds."""
    causes = volumes(path, spec)
    causes += containers(path, spec, claimed)
    causes += one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), restarts)
    causes += one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS)
    causes += labels(f"{path}.nodeSelector", spec.get("nodeSelector"))
    causes += pod_security(path, spec)
    causes += _dns(f"{path}.dnsConfig", spec)
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType") or ""
        causes += said(f"{path}.readinessGates[{index}].conditionType", kind, qualified_faults(kind))
    for name in ("nodeName", "serviceAccountName"):
        if spec.get(name):
            causes += said(f"{path}.{name}", spec[name], subdomain_faults(spec[name]))
    causes += affinity(f"{path}.affinity", spec.get("affinity") or {})
    causes += within(f"{path}.activeDeadlineSeconds", spec.get("activeDeadlineSeconds"), 1, INT32_MAX)
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            causes += said(f"{path}.{name}", spec[name], label_faults(spec[name]))
    causes += tolerations(f"{path}.tolerations", spec.get("tolerations") or [])
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        causes += address(f"{path}.hostAliases[{index}].ip", alias.get("ip") or "")
        for place, name in enumerate(alias.get("hostnames") or ()):
            causes += said(f"{path}.hostAliases[{index}].hostnames[{place}]", name, subdomain_faults(name))
    for name in ("priorityClassName", "runtimeClassName"):
        if spec.get(name):
            causes += said(f"{path}.{name}", spec[name], subdomain_faults(spec[name]))
    causes += one_of(f"{path}.preemptionPolicy", spec.get("preemptionPolicy"), _POLICIES)
    for wrong in resources(f"{path}.overhead", {"limits": spec.get("overhead") or {}}):
        causes.append(replace(wrong, at=wrong.field.replace("overhead.limits", "overhead")))
    if spec.get("resources"):
        causes += pod_resources(f"{path}.resources", spec["resources"])
    causes += spread(f"{path}.topologySpreadConstraints", spec.get("topologySpreadConstraints") or [])
    causes += _gates(path, spec)
    causes += _claims(path, spec)
    system = (spec.get("os") or {}).get("name")
    causes += one_of(f"{path}.os", system, _SYSTEMS) if spec.get("os") else []
    if system in _SYSTEMS:
        causes += of_system(path, spec, system)
    if spec.get("ephemeralContainers"):
        why = "cannot be set on create" if path == "spec" else "ephemeral containers not allowed in pod template"
        causes.append(forbidden(f"{path}.ephemeralContainers", why))
    return causes


def _dns(path: str, spec: JsonObject) -> list[FieldError]:
    given = spec.get("dnsConfig")
    causes: list[FieldError] = []
    servers = (given or {}).get("nameservers") or []
    if spec.get("dnsPolicy") == "None":
        if given is None:
            return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not servers:
            why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            causes.append(required(f"{path}.nameservers", why))
    if len(servers) > _MOST_SERVERS:
        why = f"must not have more than {_MOST_SERVERS} nameservers"
        causes.append(invalid_value(f"{path}.nameservers", servers, why))
    for index, server in enumerate(servers):
        causes += address(f"{path}.nameservers[{index}]", server)
    searches = (given or {}).get("searches") or []
    if len(searches) > _MOST_SEARCHES:
        why = f"must not have more than {_MOST_SEARCHES} search paths"
        causes.append(invalid_value(f"{path}.searches", searches, why))
    if len(" ".join(searches)) > _LONGEST_SEARCHES:
        why = f"must not have more than {_LONGEST_SEARCHES} characters (including spaces) in the search list"
        causes.append(invalid_value(f"{path}.searches", searches, why))
    for index, search in enumerate(searches):
        name = search.removesuffix(".")
        if search != "." and not re.fullmatch(_SEARCH, name):
            causes.append(invalid_value(f"{path}.searches[{index}]", name, _SEARCH_WORDS))
    for index, option in enumerate((given or {}).get("options") or ()):
        if not option.get("name"):
            causes += placed([required(f"{path}.options[{index}]", "must not be empty")], f"{path}.options[{index}]")
    return causes


def _claims(path: str, spec: JsonObject) -> list[FieldError]:
    """Resource claims (dynamic resource allocation) that the pod's containers may name."""
    causes: list[FieldError] = []
    seen: set[str] = set()
    for index, claim in enumerate(spec.get("resourceClaims") or ()):
        here, name = f"{path}.resourceClaims[{index}]", claim.get("name") or ""
        if not name:
            causes.append(required(f"{here}.name"))
        else:
            causes += said(f"{here}.name", name, label_faults(name))
            causes += [duplicate(f"{here}.name", name)] if name in seen else []
        seen.add(name)
        own, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        shown = f'{{"Name":{show(name)},"ResourceClaimName":{show(own)},"ResourceClaimTemplateName":{show(template)}}}'
        wrong = ""
        if own is None and template is None:
            wrong = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        elif own is not None and template is not None:
            wrong = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        if wrong:
            causes.append(FieldError("FieldValueInvalid", f"Invalid value: {shown}: {wrong}", here, claim, wrong))
        for key, given in (("resourceClaimName", own), ("resourceClaimTemplateName", template)):
            causes += said(f"{here}.{key}", given, subdomain_faults(given)) if given is not None else []
    return causes


def _gates(path: str, spec: JsonObject) -> list[FieldError]:
    causes, seen = [], set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name", "")
        here = f"{path}.schedulingGates[{index}]"
        if not name:
            causes.append(required(here))
        causes += said(here, name, qualified_faults(name)) if name else []
        if name in seen:
            causes.append(duplicate(here, name))
        seen.add(name)
    if seen and spec.get("nodeName"):
        causes.append(forbidden(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes
