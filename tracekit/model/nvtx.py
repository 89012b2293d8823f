"""Facts of NVTX as Nsight Systems records it: event types, library domains, payload layout."""

from __future__ import annotations

__all__ = [
    "DOMAIN_CREATE",
    "HEADER_BYTES",
    "LIBRARY_DOMAINS",
    "MARK",
    "PAYLOAD_FIELDS",
    "PUSH_POP_TYPES",
    "RANGE_TYPES",
    "START_END_TYPES",
]

MARK, DOMAIN_CREATE = 34, 75
PUSH_POP_TYPES, START_END_TYPES = (59, 70), (60, 71)
RANGE_TYPES = (*PUSH_POP_TYPES, *START_END_TYPES)
LIBRARY_DOMAINS = (
    r"(?i)^(nccl|cccl|thrust|cub|cublas\w*|cudnn\w*|cusparse\w*|cufft\w*|cusolver\w*|nvshmem"
    r"|nvjpeg|dali|tensorrt)$"
)
"""Domains in which libraries mark their own inside; never a user's step or layer."""
HEADER_BYTES = 32
"""Size of the header before the fields of a binary payload."""
PAYLOAD_FIELDS: dict[str, str] = {
    "comm": r"communicator id",
    "bytes": r"message size",
    "redop": r"reduction op",
    "nranks": r"no\. of ranks|number of ranks|nranks",
    "rank": r"^rank$",
    "peer": r"peer( rank)?$",
    "root": r"root( rank)?$",
    "device": r"cuda device",
}
"""Column of a decoded payload: pattern of the schema entry's name, ignoring case."""
