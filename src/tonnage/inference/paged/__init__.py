"""Paged KV memory beside contiguous regions: the comparison of the PagedAttention paper, played again."""

from tonnage.inference.paged.contiguous import Sized
from tonnage.inference.paged.schemes import SCHEMES, Report, Scheme, SchemeResult, Setting, Shares, compare

__all__ = ["SCHEMES", "Report", "Scheme", "SchemeResult", "Setting", "Shares", "Sized", "compare"]
