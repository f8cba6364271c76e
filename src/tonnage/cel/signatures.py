"""Which functions there are: the libraries that Kubernetes 1.36 gives to device selectors.

Sources: cel-go common/stdlib/standard.go, cel/library.go (optional types), ext/strings.go (version 2), ext/lists.go
(version 3), ext/sets.go, ext/comprehensions.go; k8s.io/apiserver pkg/cel/environment/base.go and pkg/cel/library.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tonnage.cel import kinds
from tonnage.cel.kinds import Type


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature. ``member``: called as ``a.f(b)``, the receiver being the first argument."""

    name: str
    member: bool
    arguments: tuple[Type, ...]
    result: Type
    generic: bool


_ORDERED = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_NUMBERS = ("int", "uint", "double")
_WORDS = {
    **{t.kind: t for t in (kinds.BOOL, kinds.INT, kinds.UINT, kinds.DOUBLE, kinds.STRING, kinds.BYTES, kinds.DYN)},
    "duration": kinds.DURATION,
    "timestamp": kinds.TIMESTAMP,
    "quantity": kinds.QUANTITY,
    "semver": kinds.SEMVER,
    "ip": kinds.IP,
    "cidr": kinds.CIDR,
    "list": kinds.list_of(kinds.DYN),
}
_WORD = re.compile(r"\s*([A-Za-z_]+)(\()?")

_FUNCTIONS = """
_?_:_ : bool,A,A -> A conditional
_&&_ : bool,bool -> bool logical_and
_||_ : bool,bool -> bool logical_or
!_ : bool -> bool logical_not
@not_strictly_false : bool -> bool not_strictly_false
_==_ : A,A -> bool equals
_!=_ : A,A -> bool not_equals
_+_ : bytes,bytes -> bytes add_bytes
_+_ : double,double -> double add_double
_+_ : duration,duration -> duration add_duration_duration
_+_ : duration,timestamp -> timestamp add_duration_timestamp
_+_ : timestamp,duration -> timestamp add_timestamp_duration
_+_ : int,int -> int add_int64
_+_ : list(A),list(A) -> list(A) add_list
_+_ : string,string -> string add_string
_+_ : uint,uint -> uint add_uint64
_/_ : double,double -> double divide_double
_/_ : int,int -> int divide_int64
_/_ : uint,uint -> uint divide_uint64
_%_ : int,int -> int modulo_int64
_%_ : uint,uint -> uint modulo_uint64
_*_ : double,double -> double multiply_double
_*_ : int,int -> int multiply_int64
_*_ : uint,uint -> uint multiply_uint64
-_ : double -> double negate_double
-_ : int -> int negate_int64
_-_ : double,double -> double subtract_double
_-_ : duration,duration -> duration subtract_duration_duration
_-_ : int,int -> int subtract_int64
_-_ : timestamp,duration -> timestamp subtract_timestamp_duration
_-_ : timestamp,timestamp -> duration subtract_timestamp_timestamp
_-_ : uint,uint -> uint subtract_uint64
_[_] : list(A),int -> A index_list
_[_] : map(A,B),A -> B index_map
_[_] : optional(list(V)),int -> optional(V) optional_list_index_int
_[_] : optional(map(K,V)),K -> optional(V) optional_map_index_value
_[?_] : list(V),int -> optional(V) list_optindex_optional_int
_[?_] : optional(list(V)),int -> optional(V) optional_list_optindex_optional_int
_[?_] : map(K,V),K -> optional(V) map_optindex_optional_value
_[?_] : optional(map(K,V)),K -> optional(V) optional_map_optindex_optional_value
@in : A,list(A) -> bool in_list
@in : A,map(A,B) -> bool in_map
type : A -> type(A) type
bool : bool -> bool bool_to_bool
bool : string -> bool string_to_bool
bytes : bytes -> bytes bytes_to_bytes
bytes : string -> bytes string_to_bytes
double : double -> double double_to_double
double : int -> double int64_to_double
double : string -> double string_to_double
double : uint -> double uint64_to_double
duration : duration -> duration duration_to_duration
duration : int -> duration int64_to_duration
duration : string -> duration string_to_duration
dyn : A -> dyn to_dyn
int : int -> int int64_to_int64
int : double -> int double_to_int64
int : duration -> int duration_to_int64
int : string -> int string_to_int64
int : timestamp -> int timestamp_to_int64
int : uint -> int uint64_to_int64
string : string -> string string_to_string
string : bool -> string bool_to_string
string : bytes -> string bytes_to_string
string : double -> string double_to_string
string : duration -> string duration_to_string
string : int -> string int64_to_string
string : timestamp -> string timestamp_to_string
string : uint -> string uint64_to_string
string : ip -> string ip_to_string
string : cidr -> string cidr_to_string
timestamp : timestamp -> timestamp timestamp_to_timestamp
timestamp : int -> timestamp int64_to_timestamp
timestamp : string -> timestamp string_to_timestamp
uint : uint -> uint uint64_to_uint64
uint : double -> uint double_to_uint64
uint : int -> uint int64_to_uint64
uint : string -> uint string_to_uint64
.contains : string,string -> bool contains_string
.endsWith : string,string -> bool ends_with_string
.startsWith : string,string -> bool starts_with_string
matches : string,string -> bool matches
.matches : string,string -> bool matches_string
.getHours : duration -> int duration_to_hours
.getMinutes : duration -> int duration_to_minutes
.getSeconds : duration -> int duration_to_seconds
.getMilliseconds : duration -> int duration_to_milliseconds
optional.of : V -> optional(V) optional_of
optional.ofNonZeroValue : V -> optional(V) optional_ofNonZeroValue
optional.none : -> optional(V) optional_none
.value : optional(V) -> V optional_value
.hasValue : optional(V) -> bool optional_hasValue
.or : optional(V),optional(V) -> optional(V) optional_or_optional
.orValue : optional(V),V -> V optional_orValue_value
.first : list(V) -> optional(V) list_first
.last : list(V) -> optional(V) list_last
optional.unwrap : list(optional(V)) -> list(V) optional_unwrap
.unwrapOpt : list(optional(V)) -> list(V) optional_unwrapOpt
.charAt : string,int -> string string_char_at_int
.indexOf : list(A),A -> int list_a_index_of_int
.indexOf : string,string -> int string_index_of_string
.indexOf : string,string,int -> int string_index_of_string_int
.lastIndexOf : list(A),A -> int list_a_last_index_of_int
.lastIndexOf : string,string -> int string_last_index_of_string
.lastIndexOf : string,string,int -> int string_last_index_of_string_int
.lowerAscii : string -> string string_lower_ascii
.upperAscii : string -> string string_upper_ascii
.replace : string,string,string -> string string_replace_string_string
.replace : string,string,string,int -> string string_replace_string_string_int
.split : string,string -> list(string) string_split_string
.split : string,string,int -> list(string) string_split_string_int
.substring : string,int -> string string_substring_int
.substring : string,int,int -> string string_substring_int_int
.trim : string -> string string_trim
strings.quote : string -> string strings_quote
.join : list(string) -> string list_join
.join : list(string),string -> string list_join_string
.find : string,string -> string string_find_string
.findAll : string,string -> list(string) string_find_all_string
.findAll : string,string,int -> list(string) string_find_all_string_int
.slice : list(T),int,int -> list(T) list_slice
.flatten : list(list(T)) -> list(T) list_flatten
.flatten : list(dyn),int -> list(dyn) list_flatten_int
lists.range : int -> list(int) lists_range
.reverse : list(T) -> list(T) list_reverse
.distinct : list(T) -> list(T) list_distinct
sets.contains : list(T),list(T) -> bool list_sets_contains_list
sets.equivalent : list(T),list(T) -> bool list_sets_equivalent_list
sets.intersects : list(T),list(T) -> bool list_sets_intersects_list
cel.@mapInsert : map(K,V),K,V -> map(K,V) @mapInsert_map_key_value
cel.@mapInsert : map(K,V),map(K,V) -> map(K,V) @mapInsert_map_map
quantity : string -> quantity string_to_quantity
isQuantity : string -> bool is_quantity_string
sign : quantity -> int quantity_sign
.isGreaterThan : quantity,quantity -> bool quantity_is_greater_than
.isLessThan : quantity,quantity -> bool quantity_is_less_than
.compareTo : quantity,quantity -> int quantity_compare_to
.asApproximateFloat : quantity -> double quantity_get_float
.asInteger : quantity -> int quantity_get_int
.isInteger : quantity -> bool quantity_is_integer
.add : quantity,quantity -> quantity quantity_add
.add : quantity,int -> quantity quantity_add_int
.sub : quantity,quantity -> quantity quantity_sub
.sub : quantity,int -> quantity quantity_sub_int
semver : string -> semver string_to_semver
semver : string,bool -> semver string_bool_to_semver
isSemver : string -> bool is_semver_string
isSemver : string,bool -> bool is_semver_string_bool
.isGreaterThan : semver,semver -> bool semver_is_greater_than
.isLessThan : semver,semver -> bool semver_is_less_than
.compareTo : semver,semver -> int semver_compare_to
.major : semver -> int semver_major
.minor : semver -> int semver_minor
.patch : semver -> int semver_patch
ip : string -> ip string_to_ip
isIP : string -> bool is_ip
ip.isCanonical : string -> bool ip_is_canonical
.family : ip -> int ip_family
.isUnspecified : ip -> bool ip_is_unspecified
.isLoopback : ip -> bool ip_is_loopback
.isLinkLocalMulticast : ip -> bool ip_is_link_local_multicast
.isLinkLocalUnicast : ip -> bool ip_is_link_local_unicast
.isGlobalUnicast : ip -> bool ip_is_global_unicast
cidr : string -> cidr string_to_cidr
isCIDR : string -> bool is_cidr
.containsIP : cidr,string -> bool cidr_contains_ip_string
.containsIP : cidr,ip -> bool cidr_contains_ip_ip
.containsCIDR : cidr,string -> bool cidr_contains_cidr_string
.containsCIDR : cidr,cidr -> bool cidr_contains_cidr
.ip : cidr -> ip cidr_ip
.prefixLength : cidr -> int cidr_prefix_length
.masked : cidr -> cidr cidr_masked
.includes : dyn,dyn -> bool dra_includes_dyn_dyn
"""
_CALENDAR = {
    "FullYear": "year",
    "Month": "month",
    "DayOfYear": "day_of_year",
    "DayOfMonth": "day_of_month",
    "Date": "day_of_month_1_based",
    "DayOfWeek": "day_of_week",
    "Hours": "hours",
    "Minutes": "minutes",
    "Seconds": "seconds",
    "Milliseconds": "milliseconds",
}
UNSUPPORTED = frozenset(
    """url isURL getScheme getHost getHostname getPort getEscapedPath getQuery
    format format.named validate""".split()  # noqa: SIM905
)
"""Functions of Kubernetes that no selector of devices was ever seen to use, and that are not here."""


def _generated() -> list[str]:
    lines = [f".get{name} : timestamp -> int timestamp_to_{at}" for name, at in _CALENDAR.items()]
    lines += [f".get{name} : timestamp,string -> int timestamp_to_{at}_with_tz" for name, at in _CALENDAR.items()]
    for sign, word in (("<", "less"), ("<=", "less_equals"), (">", "greater"), (">=", "greater_equals")):
        lines += [f"_{sign}_ : {t},{t} -> bool {word}_{t}" for t in _ORDERED]
        mixed = ((a, b) for a in _NUMBERS for b in _NUMBERS if a != b)
        lines += [f"_{sign}_ : {a},{b} -> bool {word}_{a}_{b}" for a, b in mixed]
    for t in _ORDERED:
        lines += [
            f".isSorted : list({t}) -> bool list_{t}_is_sorted_bool",
            f".max : list({t}) -> {t} list_{t}_max_{t}",
            f".min : list({t}) -> {t} list_{t}_min_{t}",
            f".sort : list({t}) -> list({t}) list_{t}_sort",
            f".@sortByAssociatedKeys : list(T),list({t}) -> list(T) list_{t}_sortByAssociatedKeys",
        ]
    lines += [f".sum : list({t}) -> {t} list_{t}_sum_{t}" for t in ("int", "uint", "double", "duration")]
    kinds_with_size = ("bytes", "list(A)", "map(A,B)", "string")
    for t in kinds_with_size:
        lines += [f"size : {t} -> int size_{t.split('(')[0]}", f".size : {t} -> int {t.split('(')[0]}_size"]
    return lines


def _type(text: str, at: int = 0) -> tuple[Type, int]:
    match = _WORD.match(text, at)
    assert match is not None, text
    word, at = match[1], match.end()
    if not match[2]:
        return (kinds.param(word) if len(word) == 1 else _WORDS[word]), at
    of: list[Type] = []
    while True:
        one, at = _type(text, at)
        of.append(one)
        at += 1
        if text[at - 1] == ")":
            break
    if word == "optional":
        return kinds.optional(*of), at
    return Type(word, word, tuple(of)), at


def _read(line: str) -> tuple[str, Overload]:
    name, rest = line.split(" : ")
    left, right = rest.split("-> ")
    result, overload = right.rsplit(" ", 1)
    arguments: list[Type] = []
    at = 0
    while left[at:].strip():
        one, at = _type(left, at)
        arguments.append(one)
        at += 1
    generic = any(_generic(t) for t in arguments) or _generic(_type(result)[0])
    return name.removeprefix("."), Overload(overload, name.startswith("."), tuple(arguments), _type(result)[0], generic)


def _generic(t: Type) -> bool:
    return t.kind == "param" or any(_generic(one) for one in t.of)


@cache
def functions() -> dict[str, list[Overload]]:
    """Signatures by name."""
    found: dict[str, list[Overload]] = {}
    for line in [*_FUNCTIONS.strip().splitlines(), *_generated()]:
        name, overload = _read(line)
        found.setdefault(name, []).append(overload)
    return found
