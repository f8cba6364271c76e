"""Paged KV memory beside contiguous regions: the comparison of the PagedAttention paper, played again."""

from tonnage.inference.paged.contiguous import Sized
from tonnage.inference.paged.schemes import SCHEMES, PagedEngine, PagedReport, Scheme, SchemeResult, Shares, compare

__all__ = ["SCHEMES", "PagedReport", "Scheme", "SchemeResult", "PagedEngine", "Shares", "Sized", "compare"]
