"""Small raw pages of Nsight Compute, written row by row."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["HOST", "PROCESS", "Page"]

HOST, PROCESS = "gpu-node-7.secret.example", "/home/alice/secret_model/serve.py"
_RANGES = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
_HEAD = ("ID", "Process ID", "Process Name", "Host Name", _RANGES, "Kernel Name", "Context")
_HEAD += ("Stream", "Block Size", "Grid Size", "Device", "CC")


class Page:
    """Collects profiled kernels; `write` makes the file.

    Args:
        units: Metric to its unit as ncu prints it; the columns of the page.
    """

    def __init__(self, units: Mapping[str, str]) -> None:
        self.units = dict(units)
        self.rows: list[list[str]] = []

    def kernel(
        self,
        name: str,
        *,
        inside: Sequence[str] = (),
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (128, 1, 1),
        **values: Any,
    ) -> Page:
        """Add one execution; ``values`` are metrics with ``.`` written as ``__dot__``."""
        opened = " ".join(
            f'"<default domain>:{text}:none:none:none:none:none:none"' for text in inside
        )
        given = {key.replace("__dot__", "."): value for key, value in values.items()}
        head = [str(len(self.rows)), "4242", PROCESS, HOST, f"4242  {opened}", name, "1", "7"]
        shapes = [f"({', '.join(map(str, shape))})" for shape in (block, grid)]
        metrics = [str(given.pop(metric, "n/a")) for metric in self.units]
        assert not given, given
        self.rows.append([*head, *shapes, "0", "9.0", *metrics])
        return self

    def write(self, path: Path, *, banners: Sequence[str] = ()) -> Path:
        """Write the file and return its path."""
        with path.open("w", newline="") as file:
            file.writelines(f"{line}\n" for line in banners)
            table = csv.writer(file, quoting=csv.QUOTE_ALL)
            table.writerow([*_HEAD, *self.units])
            table.writerow([*[""] * len(_HEAD), *self.units.values()])
            table.writerows(self.rows)
        return path
