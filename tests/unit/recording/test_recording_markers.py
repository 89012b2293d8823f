from __future__ import annotations

import json
from pathlib import Path

from tracekit_injectors import sidecar

from tracekit.recording.session import SIDECAR_FORMAT, gather


def part(folder: Path, pid: int, *records: tuple[int, str], tail: str = "") -> None:
    lines = [sidecar.header(pid)]
    for time_ns, text in records:
        record = {"t_mono_ns": time_ns, "pid": pid, "tid": pid, "text": text}
        lines.append(json.dumps(record) + "\n")
    (folder / f"markers.{pid}.jsonl").write_text("".join(lines) + tail)


def test_parts_are_merged_in_the_order_of_time(tmp_path: Path) -> None:
    part(tmp_path, 7, (10, "META grammar=tk1"), (30, "KV_FREE layer=1"), (20, "KV_FREE layer=0"))
    part(tmp_path, 9, (25, "KV_FREE layer=2"), tail='{"t_mono_ns":26,"pid":9,"tid"')
    target = tmp_path / "out" / "run.markers.jsonl"
    target.parent.mkdir()
    assert gather(tmp_path.glob("*.jsonl"), target) == 3
    head, *records = [json.loads(line) for line in target.read_text().splitlines()]
    assert head["tracekit_sidecar"] == SIDECAR_FORMAT == sidecar.FORMAT
    assert head["pid"] is None
    assert [(r["t_mono_ns"], r["pid"]) for r in records] == [(10, 7), (20, 7), (25, 9), (30, 7)]
    assert [path.name for path in target.parent.iterdir()] == ["run.markers.jsonl"]


def test_meta_data_alone_leaves_no_file(tmp_path: Path) -> None:
    part(tmp_path, 7, (10, "META grammar=tk1"), (10, "SYNC mono_ns=10"))
    assert gather(tmp_path.glob("*.jsonl"), tmp_path / "run") == 0
    assert not (tmp_path / "run").exists()


def test_no_parts(tmp_path: Path) -> None:
    assert gather([], tmp_path / "run") == 0
