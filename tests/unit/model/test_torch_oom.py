"""Out-of-memory messages in their two wordings."""

from __future__ import annotations

import pytest

from tracekit.views.kv.oom import parse_oom

MIB, GIB = 1 << 20, 1 << 30
OLD = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB (GPU 0; 79.15 GiB"
    " total capacity; 70.00 GiB already allocated; 512.00 MiB free; 75.00 GiB reserved in total by"
    " PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb"
)
NEW = (
    "CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of {total} of which"
    " {free} is free. Including non-PyTorch memory, this process has 78.00 GiB memory in use. Of"
    " the allocated memory 70.00 GiB is allocated by PyTorch,{private} and {unused} is reserved by"
    " PyTorch but unallocated. If reserved but unallocated memory is large try setting"
    " PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
PRIVATE = " with 46.00 MiB allocated in private pools (e.g., CUDA Graphs),"


def new(asked: str, unused: str, *, total: str = "78.09 GiB", free: str = "9.00 MiB", private=""):
    return NEW.format(asked=asked, unused=unused, total=total, free=free, private=private)


def test_the_older_wording():
    oom = parse_oom(OLD)
    assert oom is not None
    assert (oom.requested_bytes, oom.free_bytes) == (256 * MIB, 512 * MIB)
    assert oom.total_bytes == round(79.15 * GIB)
    assert (oom.allocated_bytes, oom.unallocated_bytes) == (70 * GIB, 5 * GIB)
    assert oom.private_bytes is None


@pytest.mark.parametrize(("private", "want"), [("", None), (PRIVATE, 46 * MIB)])
def test_the_newer_wording(private, want):
    oom = parse_oom(new("2.50 GiB", "335.00 MiB", private=private))
    assert oom is not None
    assert (oom.requested_bytes, oom.total_bytes) == (2560 * MIB, round(78.09 * GIB))
    assert (oom.free_bytes, oom.allocated_bytes) == (9 * MIB, 70 * GIB)
    assert (oom.unallocated_bytes, oom.private_bytes) == (335 * MIB, want)


def test_too_little_unused_memory_is_not_fragmentation():
    oom = parse_oom(new("16.00 GiB", "335.00 MiB"))
    assert oom is not None
    assert oom.verdict() == "not fragmentation (351 MB < 17.2 GB)"


def test_enough_unused_memory_is_possible_fragmentation():
    oom = parse_oom(new("2.00 GiB", "5.00 GiB"))
    assert oom is not None
    assert oom.verdict().startswith("possible fragmentation")


def test_a_share_alone_is_no_verdict():
    oom = parse_oom(new("1.00 GiB", "1.83 GiB"))
    assert oom is not None
    assert oom.unallocated_frac == pytest.approx(0.0234, abs=1e-4)
    assert oom.possible_fragmentation is True


@pytest.mark.parametrize("text", ["", "CUDA error: an illegal memory access", "out of memory"])
def test_other_texts_are_no_message(text):
    assert parse_oom(text) is None


def test_a_message_without_details_stays_unknown():
    oom = parse_oom("CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert oom is not None
    assert oom.possible_fragmentation is None
    assert oom.verdict() == "fragmentation not stated by the message"
