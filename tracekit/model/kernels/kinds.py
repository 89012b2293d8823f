"""What a kernel name can say: the classes and the answer record."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["KernelKind", "KernelName"]


class KernelKind(StrEnum):
    """Class of the work that a kernel does, by its name."""

    COMM = "comm"
    """A collective or point-to-point kernel of NCCL (or RCCL)."""
    CUSTOM_COMM = "custom_comm"
    """Communication outside NCCL: one-shot all-reduce, multimem, all-to-all of MoE, ..."""
    ATTENTION = "attention"
    GEMM = "gemm"
    GEMM_QUANT = "gemm_quant"
    """A matrix product that dequantises its weights itself: there is no separate kernel."""
    MOE_GEMM = "moe_gemm"
    """A grouped matrix product over experts."""
    GEMM_HELPER = "gemm_helper"
    """Split-K reduction and the like; belongs to a GEMM, is neither reduction nor communication."""
    DEQUANT = "dequant"
    """A standalone kernel that writes dequantised values to memory."""
    QUANTIZE = "quantize"
    """Quantises activations on the way into a low-precision product."""
    REPACK = "repack"
    """Reorders quantised weights once, at load time."""
    KV_CACHE = "kv_cache"
    """Writes, moves or addresses the KV cache."""
    MOE = "moe"
    """Routing, sorting and merging around the experts."""
    NORM = "norm"
    ROPE = "rope"
    ACTIVATION = "activation"
    SAMPLING = "sampling"
    SORT_SCAN = "sort_scan"
    STATE_SPACE = "state_space"
    """Linear-attention and state-space recurrences."""
    CONV = "conv"
    OPTIMIZER = "optimizer"
    """Updates of many tensors in one kernel, an optimiser's step for the most part."""
    COPY = "copy"
    """Moves data without computing: concatenation, gather, scatter, transpose, cast."""
    REDUCTION = "reduction"
    """A reduction inside one GPU; never communication."""
    ELEMENTWISE = "elementwise"
    UNCLASSIFIED = "unclassified"

    @property
    def is_comm(self) -> bool:
        """Whether the kernel talks to other GPUs."""
        return self in (KernelKind.COMM, KernelKind.CUSTOM_COMM)

    @property
    def is_gemm(self) -> bool:
        """Whether the kernel is a matrix product of any sort (helpers are not)."""
        return self in (KernelKind.GEMM, KernelKind.GEMM_QUANT, KernelKind.MOE_GEMM)


class KernelName(NamedTuple):
    """What one kernel name says. ``None`` always means *the name does not tell*.

    Attributes:
        name: The spelling that was classified.
        kind: Class of work.
        op: Collective operation that may be relied on (``AllReduce``, ...). ``None`` for generic
            names, and for ``SendRecv``, under which several versions run every operation:
            there the NVTX range of the call decides.
        named_op: The operation as spelled in the name, reliable or not; differs from ``op`` only
            where ``op`` is ``None``. For counting conflicts with NVTX.
        reduction: Reduction operator in lower case (``sum``, ``prod``, ...).
        dtype: Element type in short form (``bf16``, ``f16``, ``i8``, ...). In older names of
            copying collectives it is the unit in which bytes are moved, not a tensor's type.
        algorithm: Suffix such as ``RING_LL``. It names the compiled specialisation that was
            launched, not what ran: see :attr:`algorithm_note`.
        fused: Whether the communication kernel also does other work (all-reduce + norm, MoE).
        multicast: Whether the name shows NVLink multicast (``LLMC``, ``LDMC``, ``STMC``,
            ``multimem``). ``False`` proves nothing.
        family: Library or generator the name points at (``nccl``, ``cutlass``, ...).
    """

    name: str
    kind: KernelKind
    op: str | None = None
    named_op: str | None = None
    reduction: str | None = None
    dtype: str | None = None
    algorithm: str | None = None
    fused: bool = False
    multicast: bool = False
    family: str | None = None

    @property
    def is_comm(self) -> bool:
        """Whether the kernel talks to other GPUs."""
        return self.kind.is_comm

    @property
    def is_gemm(self) -> bool:
        """Whether the kernel is a matrix product of any sort (helpers are not)."""
        return self.kind.is_gemm

    @property
    def algorithm_note(self) -> str | None:
        """The suffix in words, with the warning that it does not tell the protocol.

        NCCL launches one specialised kernel for many (algorithm, protocol) pairs and picks the
        real one inside, so a rule like "LL means latency bound" would be wrong.
        """
        if self.algorithm is None:
            return None
        return f"name suffix {self.algorithm} (not evidence of protocol)"
