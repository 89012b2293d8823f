"""vLLM V1 scheduler: which blocks each sequence holds.

Block ids live in the scheduler's process, addresses in the workers'; the engine's name joins
them. One ``KV_TABLE`` mark serves all layers. Only what changed is emitted: blocks that joined
since the last look (``alloc``, or ``share`` when they came from the prefix cache), blocks that a
sliding window left behind and blocks of a request that finished or was preempted (``free``).
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from .api import kv_table
from .emitter import emitter
from .patching import after
from .vllm_worker import engine_name

__all__ = ["attach_manager", "attach_scheduler"]

MANAGER = "vllm.v1.core.kv_cache_manager"
SCHEDULER = "vllm.v1.core.sched.scheduler"
_FEATURE = "vLLM block-table markers"
_IDS_PER_MARK = 512

_sequences = itertools.count()


class _Held:
    """What was emitted of one request.

    Attributes:
        seq: Number of the sequence.
        ids: Block ids by group, in the order of the table; None where there is no block.
        live: First index by group that may still hold a block.
    """

    def __init__(self, groups: int) -> None:
        self.seq = next(_sequences)
        self.ids: list[list[int | None]] = [[] for _ in range(groups)]
        self.live = [0] * groups


class _Tables:
    """The tables of one manager."""

    def __init__(self) -> None:
        self.engine: str | None = None
        self.held: dict[str, _Held] = {}

    def look(self, request_id: str, blocks: Sequence[Sequence[Any]], shared: Sequence[int]) -> None:
        held = self.held.get(request_id)
        if held is None:
            if not any(blocks):
                return
            held = self.held[request_id] = _Held(len(blocks))
        for group, row in enumerate(blocks):
            self._leave_behind(held, group, row)
            known = len(held.ids[group])
            held.ids[group].extend(None if _is_null(b) else b.block_id for b in row[known:])
            reused = max(known, min(shared[group] if shared else 0, len(row)))
            self.emit(held, group, known, reused, "share")
            self.emit(held, group, reused, len(row), "alloc")

    def _leave_behind(self, held: _Held, group: int, row: Sequence[Any]) -> None:
        """Free what a sliding window no longer reads: the table's head turns into null blocks."""
        ids, first = held.ids[group], held.live[group]
        last = first
        while last < len(ids) and last < len(row) and _is_null(row[last]):
            last += 1
        self.emit(held, group, first, last, "free")
        held.live[group] = last

    def release(self, request_id: str) -> None:
        held = self.held.pop(request_id, None)
        for group, ids in enumerate(held.ids if held is not None else ()):
            assert held is not None
            self.emit(held, group, held.live[group], len(ids), "free")

    def emit(self, held: _Held, group: int, first: int, last: int, op: str) -> None:
        for start, ids in _runs(held.ids[group], first, last):
            kv_table(
                seq=held.seq,
                first=start,
                op=op,
                ids=ids,
                engine=self.engine,
                group=group if len(held.ids) > 1 else None,
            )


_managers: weakref.WeakKeyDictionary[Any, _Tables] = weakref.WeakKeyDictionary()


def attach_manager(module: ModuleType) -> None:
    """Hook the block manager.

    Args:
        module: ``vllm.v1.core.kv_cache_manager``.
    """
    manager = getattr(module, "KVCacheManager", None)
    after(manager, "allocate_slots", _FEATURE, _allocated)
    for name in ("free", "pop_blocks_for_free"):
        after(manager, name, _FEATURE, _freed)


def attach_scheduler(module: ModuleType) -> None:
    """Hook the scheduler's constructor, which knows the engine.

    Args:
        module: ``vllm.v1.core.sched.scheduler``.
    """
    after(getattr(module, "Scheduler", None), "__init__", _FEATURE, _constructed)


def _constructed(_result: Any, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    scheduler = args[0]
    _tables(scheduler.kv_cache_manager).engine = engine_name(scheduler.vllm_config)


def _tables(manager: Any) -> _Tables:
    tables = _managers.get(manager)
    if tables is None:
        tables = _managers[manager] = _Tables()
    return tables


def _allocated(_result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not emitter.active:
        return
    manager = args[0]
    request = args[1] if len(args) > 1 else kwargs["request"]
    computed = args[4] if len(args) > 4 else kwargs.get("new_computed_blocks")
    shared = [len(row) for row in computed.blocks] if computed is not None else []
    blocks = manager.coordinator.get_blocks(request.request_id)
    _tables(manager).look(request.request_id, blocks, shared)


def _freed(_result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    request = args[1] if len(args) > 1 else kwargs["request"]
    _tables(args[0]).release(request.request_id)


def _is_null(block: Any) -> bool:
    return bool(getattr(block, "is_null", False))


def _runs(ids: list[int | None], first: int, last: int) -> Iterator[tuple[int, list[int]]]:
    """Yield (index of the first, ids) of each stretch of `ids[first:last]` without a gap."""
    start = first
    while start < last:
        if ids[start] is None:
            start += 1
            continue
        stop = start
        run: list[int] = []
        while stop < last and len(run) < _IDS_PER_MARK:
            block = ids[stop]
            if block is None:
                break
            run.append(block)
            stop += 1
        yield start, run
        start = stop
