"""Functions that Kubernetes adds: quantities, semantic versions, addresses, attributes that are lists.

Source: k8s.io/apiserver pkg/cel/library, k8s.io/dynamic-resource-allocation cel/compile.go.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from tonnage.cel.failures import Err, ErrorKind
from tonnage.cel.quantity import INT_MAX, Quantity
from tonnage.cel.registry import function
from tonnage.cel.values import Semver, Value, same

LONGEST_ATTRIBUTE = 48
"""Values of an attribute that is a list (resource.k8s.io ResourceSliceMaxAttributeValuesPerDevice)."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Ip:
    """An address."""

    address: Address

    type_name = "net.IP"

    @property
    def cost_size(self) -> int:
        return len(self.address.packed)


@dataclass(frozen=True, slots=True)
class Cidr:
    """A network: an address and the length of the prefix."""

    address: Address
    prefix: int

    type_name = "net.CIDR"

    @property
    def cost_size(self) -> int:
        return -(-self.prefix // 8)

    def holds(self, address: Address) -> bool:
        shift = self.address.max_prefixlen - self.prefix
        return address.version == self.address.version and int(address) >> shift == int(self.address) >> shift


@function("quantity", takes=(str,))
def _quantity(a: str) -> Value:
    try:
        return Quantity.parse(a)
    except ValueError as error:
        return Err(ErrorKind.CONVERSION, str(error))


@function("isQuantity", takes=(str,))
def _is_quantity(a: str) -> Value:
    return type(_quantity(a)) is not Err


@function("sign", takes=(Quantity,))
def _sign(a: Quantity) -> Value:
    return (a.nano > 0) - (a.nano < 0)


@function("compareTo", takes=(Quantity, Quantity))
def _compare(a: Quantity, b: Quantity) -> Value:
    return (a.nano > b.nano) - (a.nano < b.nano)


@function("isGreaterThan", takes=(Quantity, Quantity))
def _greater(a: Quantity, b: Quantity) -> Value:
    return a.nano > b.nano


@function("isLessThan", takes=(Quantity, Quantity))
def _less(a: Quantity, b: Quantity) -> Value:
    return a.nano < b.nano


@function("asApproximateFloat", takes=(Quantity,))
def _float(a: Quantity) -> Value:
    return a.approximate()


@function("asInteger", takes=(Quantity,))
def _integer(a: Quantity) -> Value:
    value = a.integer()
    return Err(ErrorKind.CONVERSION, "cannot convert value to integer") if value is None else value


@function("isInteger", takes=(Quantity,))
def _is_integer(a: Quantity) -> Value:
    return a.integer() is not None


@function("add", takes=(Quantity, Quantity))
def _add(a: Quantity, b: Quantity) -> Value:
    return a.add(b)


@function("add", takes=(Quantity, int))
def _add_int(a: Quantity, b: int) -> Value:
    return a.add(Quantity.of(b))


@function("sub", takes=(Quantity, Quantity))
def _sub(a: Quantity, b: Quantity) -> Value:
    return a.subtract(b)


@function("sub", takes=(Quantity, int))
def _sub_int(a: Quantity, b: int) -> Value:
    return a.subtract(Quantity.of(b))


def _normalized(text: str) -> str:
    """``v1.2`` as ``1.2.0``, leading zeros of the numbers cut."""
    text = text.removeprefix("v")
    match = re.fullmatch(r"([^-+]*)([-+].*)?", text, re.DOTALL)
    assert match is not None
    numbers = match[1].split(".")
    numbers += ["0"] * (3 - len(numbers))
    return ".".join(n.lstrip("0") or ("0" if n else "") for n in numbers) + (match[2] or "")


@function("semver", takes=(str,))
@function("semver", takes=(str, bool))
def _semver(a: str, normalize: bool = False) -> Value:
    try:
        return Semver.parse(_normalized(a) if normalize else a)
    except ValueError as error:
        return Err(ErrorKind.CONVERSION, str(error))


@function("isSemver", takes=(str,))
@function("isSemver", takes=(str, bool))
def _is_semver(a: str, normalize: bool = False) -> Value:
    return type(_semver(a, normalize)) is not Err


@function("compareTo", takes=(Semver, Semver))
def _compare_versions(a: Semver, b: Semver) -> Value:
    return (a.order > b.order) - (a.order < b.order)


@function("isGreaterThan", takes=(Semver, Semver))
def _newer(a: Semver, b: Semver) -> Value:
    return a.order > b.order


@function("isLessThan", takes=(Semver, Semver))
def _older(a: Semver, b: Semver) -> Value:
    return a.order < b.order


@function("major", takes=(Semver,))
def _major(a: Semver) -> Value:
    return _wrapped(a.major)


@function("minor", takes=(Semver,))
def _minor(a: Semver) -> Value:
    return _wrapped(a.minor)


@function("patch", takes=(Semver,))
def _patch(a: Semver) -> Value:
    return _wrapped(a.patch)


def _wrapped(number: int) -> int:
    return number if number <= INT_MAX else number - 2**64


def _address(text: str) -> Address | Err:
    try:
        found = ipaddress.ip_address(text)
    except ValueError as error:
        return Err(ErrorKind.CONVERSION, f"no IP address: {error}")
    if isinstance(found, ipaddress.IPv6Address) and (found.scope_id or found.ipv4_mapped):
        return Err(ErrorKind.CONVERSION, f"{text!r} has a zone or an IPv4 address in it")
    return found


@function("ip", takes=(str,))
def _ip(a: str) -> Value:
    found = _address(a)
    return found if isinstance(found, Err) else Ip(found)


@function("isIP", takes=(str,))
def _is_ip(a: str) -> Value:
    return not isinstance(_address(a), Err)


@function("ip.isCanonical", takes=(str,))
def _is_canonical(a: str) -> Value:
    found = _address(a)
    return found if isinstance(found, Err) else str(found) == a


@function("cidr", takes=(str,))
def _cidr(a: str) -> Value:
    text, _, prefix = a.partition("/")
    found = _address(text)
    if isinstance(found, Err):
        return found
    if not re.fullmatch(r"0|[1-9][0-9]{0,2}", prefix) or int(prefix) > found.max_prefixlen:
        return Err(ErrorKind.CONVERSION, f"{a!r} is no network, expected e.g. 10.0.0.0/8")
    return Cidr(found, int(prefix))


@function("isCIDR", takes=(str,))
def _is_cidr(a: str) -> Value:
    return type(_cidr(a)) is not Err


@function("containsIP", takes=(Cidr, Ip))
def _contains_ip(a: Cidr, b: Ip) -> Value:
    return a.holds(b.address)


@function("containsIP", takes=(Cidr, str))
def _contains_ip_text(a: Cidr, b: str) -> Value:
    found = _address(b)
    return found if isinstance(found, Err) else a.holds(found)


@function("containsCIDR", takes=(Cidr, Cidr))
def _contains_cidr(a: Cidr, b: Cidr) -> Value:
    return a.holds(b.address) and a.prefix <= b.prefix


@function("containsCIDR", takes=(Cidr, str))
def _contains_cidr_text(a: Cidr, b: str) -> Value:
    found = _cidr(b)
    return found if type(found) is Err else _contains_cidr(a, found)


@function("ip", takes=(Cidr,))
def _ip_of(a: Cidr) -> Value:
    return Ip(a.address)


@function("prefixLength", takes=(Cidr,))
def _prefix_length(a: Cidr) -> Value:
    return a.prefix


@function("masked", takes=(Cidr,))
def _masked(a: Cidr) -> Value:
    shift = a.address.max_prefixlen - a.prefix
    return Cidr(type(a.address)(int(a.address) >> shift << shift), a.prefix)


@function("family", takes=(Ip,))
def _family(a: Ip) -> Value:
    return a.address.version


@function("isUnspecified", takes=(Ip,))
def _is_unspecified(a: Ip) -> Value:
    return a.address.is_unspecified


@function("isLoopback", takes=(Ip,))
def _is_loopback(a: Ip) -> Value:
    return a.address.is_loopback


@function("isLinkLocalUnicast", takes=(Ip,))
def _is_link_local(a: Ip) -> Value:
    return a.address.is_link_local


@function("isLinkLocalMulticast", takes=(Ip,))
def _is_link_local_multicast(a: Ip) -> Value:
    packed = a.address.packed
    return packed[:3] == b"\xe0\x00\x00" if len(packed) == 4 else packed[0] == 0xFF and packed[1] & 0x0F == 2


@function("isGlobalUnicast", takes=(Ip,))
def _is_global_unicast(a: Ip) -> Value:
    address = a.address
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not special and address != ipaddress.ip_address("255.255.255.255")


@function("string", takes=(Ip,))
def _ip_to_string(a: Ip) -> Value:
    return str(a.address)


@function("string", takes=(Cidr,))
def _cidr_to_string(a: Cidr) -> Value:
    return f"{a.address}/{a.prefix}"


@function("includes", takes=(object, object))
def _includes(a: Any, b: Value) -> Value:
    if type(a) is not list:
        return same(a, b) is True
    for one in a[:LONGEST_ATTRIBUTE]:
        if same(one, b) is True:
            return True
    return (
        Err(ErrorKind.ARGUMENT, f"the list is longer than {LONGEST_ATTRIBUTE}") if len(a) > LONGEST_ATTRIBUTE else False
    )
