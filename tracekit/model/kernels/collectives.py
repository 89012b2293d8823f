"""Operation, element type and suffix out of the names of communication kernels."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Collective", "parse_custom", "parse_nccl"]


class Collective(NamedTuple):
    """Fields of a communication kernel's name; ``None`` where the name does not tell."""

    op: str | None = None
    named_op: str | None = None
    reduction: str | None = None
    dtype: str | None = None
    algorithm: str | None = None


# Order matters: "AllReduce" contains "Reduce", "AllGatherV" contains "AllGather".
_OPS: tuple[tuple[str, str], ...] = (
    ("AllReduce", r"all_?reduce"),
    ("AllGatherV", r"all_?gather_?v"),
    ("AllGather", r"all_?gather"),
    ("ReduceScatter", r"reduce_?scatter"),
    ("AlltoAll", r"all_?to_?all|a2a"),
    ("SendRecv", r"send_?recv"),
    ("Broadcast", r"broadcast"),
    ("Send", r"send"),
    ("Recv", r"recv"),
    ("Reduce", r"reduce"),
    ("Gather", r"gather"),
    ("Scatter", r"scatter"),
    ("Barrier", r"barrier"),
)
_OP_PATTERNS = tuple((op, re.compile(pattern, re.IGNORECASE)) for op, pattern in _OPS)
_DTYPES = {
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "__nv_bfloat16": "bf16",
    "__nv_fp8_e4m3": "f8e4m3",
    "__nv_fp8_e5m2": "f8e5m2",
    "int8_t": "i8",
    "uint8_t": "u8",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
}
_SHORT_DTYPES = ("f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2", "i8", "u8", "i32", "u32", "i64")
_DTYPE = re.compile(
    "(?:^|_)("
    + "|".join(sorted((*_DTYPES, *_SHORT_DTYPES, "u64"), key=len, reverse=True))
    + ")(?=_|$)",
    re.IGNORECASE,
)
_REDUCTION = re.compile(
    r"(?:^|_)(PreMulSum|SumPostDiv|MinMax|Sum|Prod|Max|Min|Avg)(?=_|$)", re.IGNORECASE
)
# ncclDevKernel_X, ncclSymkDevKernel_X, ncclKernel_X, and RCCL's spellings of them.
_MODERN = re.compile(r"nccl(?:Symk?)?(?:Dev)?Kernel_?(?P<rest>\w*)", re.IGNORECASE)
_OLD = re.compile(
    r"nccl(?P<op>AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv)"
    r"(?P<algorithm>\w*?)Kernel_?(?P<rest>\w*)",
    re.IGNORECASE,
)
_EXPERT_EXCHANGE = re.compile(r"deep_ep::.*(?:dispatch|combine)", re.IGNORECASE)


def parse_nccl(head: str) -> Collective:
    """Read the name of an NCCL kernel of any era, or a host-side ``nccl:all_reduce``.

    Args:
        head: Qualified function name without arguments.

    Returns:
        The fields found. ``op`` stays ``None`` for ``Generic`` and ``SendRecv``, which some
        versions put on every operation.
    """
    old = _OLD.match(head)
    if old is not None:
        return _with_suffix(_canonical(old["op"]), old["rest"], old["algorithm"] or None)
    modern = _MODERN.match(head)
    if modern is None:
        named = _only_op(head)
        return Collective(op=named if named != "SendRecv" else None, named_op=named)
    token, _, rest = modern["rest"].partition("_")
    return _with_suffix(_canonical(token), rest, None)


def parse_custom(function: str, scope: str = "") -> Collective:
    """Read the name of a communication kernel outside NCCL.

    Args:
        function: Its own name, without arguments.
        scope: Namespaces around it; they count where the name itself spells no operation.

    Returns:
        The operation where exactly one is spelled; the rest unknown.
    """
    if _EXPERT_EXCHANGE.search(f"{scope}::{function}"):
        return Collective(op="AlltoAll", named_op="AlltoAll")
    op = "AllReduce" if "cross_device_reduce" in function else _only_op(function)
    op = op or _only_op(scope)
    return Collective(op=op, named_op=op)


def _canonical(token: str) -> str | None:
    """Map a token onto NCCL's spelling; ``Generic`` and the empty token say nothing."""
    if not token or token.lower().startswith("generic"):
        return None
    for op, pattern in _OP_PATTERNS:
        if pattern.fullmatch(token):
            return op
    return token


def _only_op(head: str) -> str | None:
    """The one operation a name spells, or ``None`` if it spells none or several."""
    found: list[str] = []
    rest = head
    for op, pattern in _OP_PATTERNS:
        if pattern.search(rest):
            found.append(op)
            rest = pattern.sub(" ", rest)
    if "AllReduce" in found and "Reduce" in found:  # moereduce_allreduce: a local sum comes first
        found.remove("Reduce")
    return found[0] if len(found) == 1 else None


def _with_suffix(named: str | None, rest: str, algorithm: str | None) -> Collective:
    """Split ``Sum_bf16_RING_LL``, ``RING_LL_Sum_half`` and ``RSxLD_AGxST_sum_bf16`` alike."""
    reduction = dtype = None
    if found := _DTYPE.search(rest):
        spelled = found[1].lower()
        dtype = _DTYPES.get(spelled, spelled)
        rest = rest[: found.start()] + rest[found.end() :]
    if found := _REDUCTION.search(rest):
        reduction = found[1].lower()
        rest = rest[: found.start()] + rest[found.end() :]
    if named is None:  # RCCL's Generic_1: what follows is a number, not an algorithm
        rest = ""
    return Collective(
        op=named if named != "SendRecv" else None,
        named_op=named,
        reduction=reduction,
        dtype=dtype,
        algorithm=algorithm or rest.strip("_") or None,
    )
