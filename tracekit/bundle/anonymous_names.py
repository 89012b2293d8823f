"""Kernel names replaced by a hash that the classifier still reads the class of.

A hashed name is ``words<hash>``: words that carry what `tracekit.model.kernels` found in the name,
class, collective operation, element type, and a hash that tells names apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from tracekit.model.kernels import Classifier, KernelKind, KernelName, classify

__all__ = ["hashed_name"]

_K = KernelKind
_WORDS: dict[KernelKind, str] = {
    _K.COMM: "ncclDevKernel",
    _K.CUSTOM_COMM: "userbuffers",
    _K.ATTENTION: "attention",
    _K.GEMM: "gemm",
    _K.GEMM_QUANT: "weight_only_gemm",
    _K.MOE_GEMM: "moe_gemm",
    _K.GEMM_HELPER: "splitk_reduce",
    _K.DEQUANT: "dequantize",
    _K.QUANTIZE: "quantize",
    _K.REPACK: "repack",
    _K.KV_CACHE: "reshape_and_cache",
    _K.MOE: "moe",
    _K.NORM: "rms_norm",
    _K.ROPE: "rotary",
    _K.ACTIVATION: "activation_kernel",
    _K.SAMPLING: "sampling",
    _K.SORT_SCAN: "radix_sort",
    _K.STATE_SPACE: "selective_scan",
    _K.CONV: "convolution",
    _K.OPTIMIZER: "multi_tensor_apply",
    _K.COPY: "transpose",
    _K.REDUCTION: "reduce",
    _K.ELEMENTWISE: "elementwise",
    _K.UNCLASSIFIED: "kernel",
}
_OPS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AlltoAll": "all_to_all",
}
_HASH_DIGITS = 10
_SALIENT = ("kind", "op", "named_op", "reduction", "dtype", "fused", "multicast")


def hashed_name(name: str, classifier: Classifier) -> str:
    """Return a stand-in for a kernel name.

    Args:
        name: Name as recorded.
        classifier: Knows the classes that the user gave to names.

    Returns:
        The first of the candidates, most telling first, that says the same as `name`; at least
        the class is always the same.
    """
    found = classifier.classify(name)
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    candidates = [f"{words}<h{digest}>" for words in _candidates(found)]
    return next((c for c in candidates if _agrees(classify(c), found)), candidates[-1])


def _agrees(one: KernelName, other: KernelName) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in _SALIENT)


def _candidates(found: KernelName) -> Iterator[str]:
    """Words for the head of the name; only words of our own or of NCCL's fixed vocabulary."""
    words = _WORDS[found.kind]
    if found.kind is KernelKind.COMM and found.named_op is not None:
        parts = (found.named_op, (found.reduction or "").capitalize(), found.dtype)
        yield "_".join([words, *(p for p in parts if p)])
        if found.multicast:
            yield "_".join([words, *(p for p in parts if p), "LLMC"])
        yield f"{words}_{found.named_op}"
    if found.kind is KernelKind.CUSTOM_COMM:
        word = _OPS.get(found.named_op or "", words)
        for prefix in ("", "fused_", "multimem_", "multimem_fused_"):
            yield prefix + word
    yield words
