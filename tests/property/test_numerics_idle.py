"""Idle time on arrays against the same rules applied moment by moment."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.numerics.idle import blocking, causes, gaps, keys, waterfall
from tracekit.numerics.sweeps import BEFORE_ALL

CELL = 5_000
"""Times are multiples of this many ns, so that pauses of 100 us and 10 us are few of them."""
for kernel in (gaps._gaps, gaps._before, blocking._host_waits, causes._divide):
    kernel.build()
for kernel in (waterfall._swept, waterfall._by_cause, keys._stretches):
    kernel.build()

intervals = st.tuples(st.integers(0, 60), st.integers(0, 12))


def arrays(rows: list[tuple[int, int]], unit: int = 1) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([s for s, _ in rows], np.int64) * unit
    return start, start + np.array([length for _, length in rows], np.int64) * unit


@settings(deadline=None)
@given(st.lists(st.tuples(intervals, st.integers(0, 3)), max_size=12))
def test_gaps_are_the_moments_in_which_nothing_runs(found):
    found.sort(key=lambda row: row[0])
    s, e = arrays([row for row, _ in found])
    tie = np.array([t for _, t in found], np.uint32)
    got = gaps.gaps(s, e, tie)
    active = {t for a, b in zip(s.tolist(), e.tolist(), strict=True) for t in range(a, b)}
    span = range(min(active, default=0), max(active, default=-1))
    idle = [t for t in span if t not in active]
    starts = [t for t in idle if t - 1 not in idle]
    ends = [t + 1 for t in idle if t + 1 not in idle]
    assert (got.start.tolist(), got.end.tolist()) == (starts, ends)
    for g0, g1, before, after in zip(*(c.tolist() for c in got), strict=True):
        assert e[before] == g0
        at_once = [i for i in range(s.size) if s[i] == g1 and e[i] > g1]
        assert after in at_once
        assert tie[after] == min(tie[i] for i in at_once)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=20))
def test_what_ran_before_in_a_queue(queue):
    rows = np.arange(0, len(queue), 2, dtype=np.uint32)
    got = gaps.before_in_queue(np.array(queue, np.uint32), 4, rows)
    slow = [max((k for k in range(i) if queue[k] == queue[i]), default=-1) for i in rows]
    assert got.tolist() == slow


KINDS = (
    *(blocking.ENQUEUES, blocking.WAITS, blocking.BLOCKS | blocking.ENQUEUES, 0),
    blocking.ENQUEUES | blocking.PAIRS,
    blocking.ENQUEUES | blocking.PAIRS | blocking.BLOCKS,
    blocking.BEGINS_CAPTURE,
    blocking.ENDS_CAPTURE,
    blocking.ENQUEUES | blocking.LAUNCHES,
    blocking.ENQUEUES | blocking.LAUNCHES | blocking.HAS_WORK,
    blocking.ENQUEUES | blocking.LAUNCHES | blocking.GRAPHS,
)


def slow_waits(rows: list, threads: int) -> tuple[list, list, tuple[int, int, int]]:
    """Intervals by thread, the enqueuing call before each call, and launches without work."""
    waits, previous, counts = [], [-1] * len(rows), [0, 0, 0]
    for thread in range(threads):
        own = sorted(
            (i for i in range(len(rows)) if rows[i][2] == thread), key=lambda i: rows[i][0]
        )
        for place, i in enumerate(own):
            start, end, _, kind = rows[i]
            before = [k for k in own[:place] if rows[k][3] & blocking.ENQUEUES]
            previous[i] = before[-1] if before else -1
            if kind & (blocking.WAITS | blocking.BLOCKS):
                copy = -1
                breaks = blocking.ENQUEUES | blocking.WAITS | blocking.PAIRS
                last = [k for k in own[:place] if rows[k][3] & breaks]
                pairs = kind & blocking.WAITS and last and rows[last[-1]][3] & blocking.PAIRS
                if pairs and start - rows[last[-1]][1] <= blocking.PAIR_NS:
                    copy = last[-1]
                waits.append((thread, rows[copy][0] if copy >= 0 else start, end, i, copy))
            depth = 0
            for k in own[:place]:
                depth += bool(rows[k][3] & blocking.BEGINS_CAPTURE)
                depth = max(0, depth - bool(rows[k][3] & blocking.ENDS_CAPTURE))
            if kind & blocking.LAUNCHES and not depth:
                lost = not kind & blocking.HAS_WORK
                counts[0] += lost
                counts[1] += 1
                counts[2] += lost and bool(kind & blocking.GRAPHS)
    return sorted(waits, key=lambda w: w[:2]), previous, (counts[0], counts[1], counts[2])


@settings(deadline=None)
@given(st.lists(st.tuples(intervals, st.integers(0, 2), st.sampled_from(KINDS)), max_size=14))
def test_waits_of_threads(found):
    s, e = arrays([row for row, _, _ in found], CELL)
    thread = np.array([t for _, t, _ in found], np.uint32)
    bits = np.array([k for _, _, k in found], np.uint16)
    got = blocking.host_waits(s, e, thread, bits, 3)
    rows = list(zip(s.tolist(), e.tolist(), thread.tolist(), bits.tolist(), strict=True))
    waits, previous, counts = slow_waits(rows, 3)
    assert got.previous.tolist() == previous
    assert (got.n_without_work, got.n_launches, got.n_graphs_without_work) == counts
    assert got.thread.tolist() == [w[0] for w in waits]
    assert got.start.tolist() == [w[1] for w in waits]
    for place, (of, _, end, _, _) in enumerate(waits):
        until = [w for w in waits[: place + 1] if w[0] == of]
        assert got.reach[place] == max(w[2] for w in until) >= end
        assert got.wait[place] in {w[3] for w in until if w[2] == got.reach[place]}


def slow_cause(t: int, g: tuple[int, int], one: dict, waits: list, busy: list) -> tuple[str, str]:
    """Cause and place of one moment of a gap."""
    if not one["known"]:
        return "unknown", "host"
    if one["replay"]:
        return "graph_internal", "host"
    (g0, g1), (l0, l1) = g, one["call"]
    place = "host" if t < min(l0, g1) else "call" if t < l1 else "after"
    covering = [b for b in waits if b[0] <= g0 < b[1]]
    until = max((b[1] for b in covering), default=None)
    lead = "launch_latency"
    if l0 > g0:
        late = one["previous"] is None or l0 - one["previous"] > causes.THINK_NS
        lead = "host_gap" if late else "launch_rate"
        if until is not None:
            lead = "sync" if l0 - until <= causes.THINK_NS else "host_gap"
    if place != "after":
        own = [name for a, b, name in busy if a <= t < b]
        if own and (own[0] != "host_blocked" or (place == "host" and until is None)):
            return own[0], place
    if place == "host":
        return ("sync" if until is not None and t < until else lead), place
    if place == "call":
        special = "graph_launch" if one["graph"] else "copy_staging" if one["staged"] else lead
        return special, place
    late = g1 - max(g0, l1)
    if late <= causes.DISPATCH_NS and l1 > g0:
        return lead, place
    if one["waited"]:
        return "event_wait", place
    return ("dispatch" if late <= causes.DISPATCH_NS else "queued_late"), place


launches = st.fixed_dictionaries(
    {
        "known": st.sampled_from([True, True, True, False]),
        "replay": st.sampled_from([False, False, True]),
        "graph": st.sampled_from([False, False, True]),
        "staged": st.booleans(),
        "waited": st.booleans(),
        "call": st.tuples(st.integers(0, 60), st.integers(0, 12)),
        "previous": st.one_of(st.none(), st.integers(-20, 60)),
        "thread": st.integers(0, 1),
    }
)
held = st.lists(
    st.tuples(
        *(st.integers(0, 60), st.integers(1, 6)),
        st.sampled_from(["profiler", "module_load", "allocation", "graph_build", "host_blocked"]),
    ),
    max_size=5,
)
bits_of = {"known": causes.KNOWN, "replay": causes.REPLAY, "graph": causes.GRAPH_LAUNCH}
bits_of |= {"staged": causes.STAGED, "waited": causes.WAITED}


def apart(rows: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Rows that do not overlap one before them, in ns."""
    found: list[tuple[int, int, str]] = []
    for start, length, name in sorted(rows):
        if not found or found[-1][1] <= start * CELL:
            found.append((start * CELL, (start + length) * CELL, name))
    return found


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 30), launches), max_size=5),
    st.lists(st.tuples(intervals, st.integers(0, 1)), max_size=5),
    st.tuples(held, held),
)
def test_causes_are_those_of_every_moment(found, waited, kept):
    at, rows = 0, []
    for pause, length, launch in found:
        g = ((at + pause) * CELL, (at + pause + length) * CELL)
        at += pause + length
        l0, long = launch["call"]
        call = (l0 * CELL, (l0 + long) * CELL)
        previous = launch["previous"]
        previous = None if previous is None else min(previous, l0) * CELL
        rows.append((g, {**launch, "call": call, "previous": previous}))
    waits = sorted((t, s * CELL, (s + n) * CELL) for (s, n), t in waited)
    reach, by_thread = [], {0: 0, 1: 0}
    for thread, _, end in waits:
        by_thread[thread] = max(by_thread[thread], end)
        reach.append(by_thread[thread])
    busy = [apart(rows_of) for rows_of in kept]
    wait_first = np.searchsorted([w[0] for w in waits], [0, 1, 2])
    parts = causes.divide(
        np.array([g[0] for g, _ in rows], np.int64),
        np.array([g[1] for g, _ in rows], np.int64),
        causes.Launched(
            np.array([one["call"][0] for _, one in rows], np.int64),
            np.array([one["call"][1] for _, one in rows], np.int64),
            np.array(
                [BEFORE_ALL if one["previous"] is None else one["previous"] for _, one in rows],
                np.int64,
            ),
            np.array([one["thread"] for _, one in rows], np.int32),
            np.array(
                [sum(bit for name, bit in bits_of.items() if one[name]) for _, one in rows],
                np.uint8,
            ),
        ),
        causes.Waiting(
            wait_first.astype(np.int64),
            np.array([w[1] for w in waits], np.int64),
            np.array(reach, np.int64),
        ),
        causes.Busy(
            np.array([0, len(busy[0]), len(busy[0]) + len(busy[1])], np.int64),
            np.array([b[0] for own in busy for b in own], np.int64),
            np.array([b[1] for own in busy for b in own], np.int64),
            np.array([causes.cause(b[2]) for own in busy for b in own], np.uint8),
        ),
    )
    got = {}
    for gap, start, end, cause, place, _ in zip(*(c.tolist() for c in parts), strict=True):
        for t in range(start, end, CELL):
            assert (gap, t) not in got
            got[gap, t] = (causes.CAUSES[cause], causes.PLACES[place])
    slow = {}
    for number, (g, launch) in enumerate(rows):
        own = [(a, b) for t, a, b in waits if t == launch["thread"]]
        for t in range(g[0], g[1], CELL):
            slow[number, t] = slow_cause(t, g, launch, own, busy[launch["thread"]])
    assert got == slow
    assert (np.diff(parts.gap) >= 0).all()
    assert (np.diff(parts.start) > 0).all()


windows = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20)), max_size=4)


def consecutive(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    starts, ends, at = [], [], 0
    for pause, length in rows:
        starts.append(at + pause)
        at += pause + length
        ends.append(at)
    return np.array(starts, np.int64), np.array(ends, np.int64)


@settings(deadline=None)
@given(
    st.lists(st.tuples(intervals, st.integers(0, 3), st.one_of(st.none(), st.integers(0, 70)))),
    windows,
)
def test_every_moment_is_of_the_first_class_that_runs(found, in_time):
    found.sort(key=lambda row: row[0])
    s, e = arrays([row for row, _, _ in found])
    kind = np.array([k for _, k, _ in found], np.uint8)
    class_of = np.array([2, 0, 1, 3], np.uint8)
    split = [i for i, (_, _, at) in enumerate(found) if at is not None]
    splits = waterfall.Splits(
        np.array(split, np.int64), np.array([found[i][2] for i in split], np.int64), 4, 5
    )
    edges = consecutive(in_time)
    own, active = waterfall.by_class(waterfall.Rows(s, e, kind, class_of), edges, 6, splits)
    for w, (start, end) in enumerate(zip(*(c.tolist() for c in edges), strict=True)):
        slow, ran = [0] * 6, [0] * 6
        for t in range(start, end):
            now = set()
            for i, (_, k, at) in enumerate(found):
                if s[i] <= t < e[i]:
                    now.add(int(class_of[k]) if at is None else 4 if t < at else 5)
            for c in now:
                ran[c] += 1
            if now:
                slow[min(now)] += 1
        assert own[w].tolist() == slow
        assert active[w].tolist() == ran


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(0, 2))), windows)
def test_idle_time_of_windows(found, in_time):
    s, e = consecutive([(pause, length) for pause, length, _ in found])
    cause = np.array([c for _, _, c in found], np.uint8)
    edges = consecutive(in_time)
    got = waterfall.by_cause(s, e, cause, edges, 3)
    for w, (start, end) in enumerate(zip(*(c.tolist() for c in edges), strict=True)):
        slow = [0, 0, 0]
        for t in range(start, end):
            for i in range(s.size):
                slow[cause[i]] += bool(s[i] <= t < e[i])
        assert got[w].tolist() == slow


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            *(st.integers(0, 2), st.integers(1, 9), st.integers(0, 5), st.integers(0, 2)),
            st.integers(-1, 1),
        ),
        max_size=12,
    ),
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3), st.integers(-1, 3)), min_size=13),
)
def test_neighbouring_parts_of_one_cause_are_one_stretch(found, of_gaps):
    how = [0, keys.BY_WAIT, keys.BY_BUSY, keys.BY_CALL, keys.BY_HOST, keys.BY_HOST]
    gap = np.cumsum([new > 0 for new, *_ in found], dtype=np.int32)
    end = np.cumsum([length for _, length, *_ in found], dtype=np.int64)
    start = np.append(0, end[:-1])[: end.size].astype(np.int64)
    cause = np.array([c for _, _, c, _, _ in found], np.uint8)
    place = np.array([p for _, _, _, p, _ in found], np.uint8)
    by = np.array([b for *_, b in found], np.int32)
    of_call, wait, busy = (np.array(v) for v in ([3, 0, 2, 1], [4, 7], [1, -1]))
    code, call, previous = (np.array(c) for c in zip(*of_gaps, strict=True))
    names = keys.Names(
        *(code.astype(np.int64), call.astype(np.int32), previous.astype(np.int32)),
        *(of_call.astype(np.uint32), wait, busy, np.array(how, np.uint8), 9),
    )
    got = keys.stretches(causes.Parts(gap, start, end, cause, place, by), names)
    slow: list[list[int]] = []
    meant: list[tuple] = []
    for i, g in enumerate(gap.tolist()):
        if not i or g != gap[i - 1] or cause[i] != cause[i - 1]:
            kind, name, after = how[cause[i]], -1, -1
            if kind == keys.BY_HOST and call[g] >= 0:
                after = int(of_call[call[g]])
            if kind in (keys.BY_WAIT, keys.BY_HOST) and by[i] >= 0:
                name = int(wait[by[i]])
            elif kind == keys.BY_BUSY and by[i] >= 0:
                name = int(busy[by[i]])
            elif kind == keys.BY_CALL and call[g] >= 0:
                name = int(of_call[call[g]])
            elif kind == keys.BY_HOST and previous[g] >= 0:
                name = int(of_call[previous[g]])
            slow.append([i, 0, 0, name, after])
            meant.append((int(code[g]), int(cause[i]), name, after))
        slow[-1][1] += int(end[i] - start[i])
        slow[-1][2] += int(end[i] - start[i]) * (causes.PLACES[place[i]] == "call")
    columns = (got.part, got.time_ns, got.in_call_ns, *keys.named(got.key, names.n_names))
    assert [list(row) for row in zip(*(c.tolist() for c in columns), strict=True)] == slow
    by_key = list(zip(got.key.tolist(), meant, strict=True))
    assert len({k for k, _ in by_key}) == len(set(meant)) == len(set(by_key))
