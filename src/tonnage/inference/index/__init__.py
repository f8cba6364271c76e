"""The KV index: which worker holds which prefix, exactly from events, approximately from dispatches, and how far to
trust either. Bytes in, answers out; sockets and clocks are the caller's."""

from tonnage.inference.index.answers import MemoryUse, TierBlocks
from tonnage.inference.index.approximate import PredictedIndex
from tonnage.inference.index.events import AllBlocksCleared, Batch, BlockRemoved, BlockStored, decode_batch
from tonnage.inference.index.exact import KvIndex
from tonnage.inference.index.hashes import PromptKeys, prompt_keys
from tonnage.inference.index.router_view import RouterView, path_of
from tonnage.inference.index.streams import EventStream
from tonnage.inference.index.trust import TrustedSource, TrustSettings, WorkerTrust
from tonnage.inference.index.view import CacheView
from tonnage.inference.index.workers import canonical, from_topic

__all__ = [
    "AllBlocksCleared",
    "Batch",
    "BlockRemoved",
    "BlockStored",
    "CacheView",
    "EventStream",
    "KvIndex",
    "MemoryUse",
    "PredictedIndex",
    "PromptKeys",
    "RouterView",
    "TierBlocks",
    "TrustSettings",
    "TrustedSource",
    "WorkerTrust",
    "canonical",
    "decode_batch",
    "from_topic",
    "path_of",
    "prompt_keys",
]
