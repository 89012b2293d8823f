"""``tracekit topo``: where GPUs and ranks sit, and what lies between them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.sizing._answer import PATH, Answer, check, deliver, output_options, text_of

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.machines.topology import Finding, Machine, Rank

__all__ = ["command"]

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command("topo", short_help="Ranks far from their GPU, and the paths between GPUs.")
@click.option(
    "--matrix", metavar="FILE", type=PATH, help="What `nvidia-smi topo -m` printed, saved."
)
@click.option(
    "--gpus",
    metavar="FILE",
    type=PATH,
    help="What `nvidia-smi --query-gpu=index,pci.bus_id --format=csv` printed, saved.",
)
@click.option("--sysfs", metavar="DIR", type=_FOLDER, help="A saved copy of /sys.")
@click.option(
    "--ranks", metavar="FILE", type=PATH, help="Ranks as CSV: rank, gpu, cpus (as 0-15;32-47)."
)
@output_options
def command(
    matrix: Path | None,
    gpus: Path | None,
    sysfs: Path | None,
    ranks: Path | None,
    outputs: tuple[Path, ...],
    form: str,
) -> None:
    """Find ranks that run far from their GPU, and pairs of GPUs without a fast path.

    Reads the running machine, or what was saved of another one with --matrix.
    """
    from tracekit.sizing import charts
    from tracekit.sizing.machines import sources, topology

    check(outputs, [p for p in (matrix, gpus, ranks) if p is not None])
    machine, seen = _live() if matrix is None else _saved(matrix, gpus, sysfs)
    if ranks is not None:
        seen = sources.ranks_of(ranks)
    found = topology.findings(machine, seen)
    classes = topology.path_classes(machine, list(machine.gpus))

    def text(page: Lines) -> None:
        _findings(page, found)
        _places(page, machine)
        _paths(page, classes)

    document: dict[str, Any] = {
        "gpus": [*machine.gpus.values()],
        "paths": classes,
        "nodes": machine.nodes,
    }
    document |= {"ranks": seen, "findings": found}
    deliver(
        Answer(
            verb="topo",
            document=document,
            write=text,
            chart=lambda: charts.topology(machine),
        ),
        form,
        outputs,
    )


def _live() -> tuple[Machine, list[Rank]]:
    from tracekit.sizing.machines import sources as source
    from tracekit.sizing.machines.topology import parse_matrix, with_nodes

    buses = source.bus_ids(source.smi(["--query-gpu=index,pci.bus_id", "--format=csv,noheader"]))
    found = parse_matrix(source.smi(["topo", "-m"]))
    sysfs = Path("/sys")
    apps = source.smi(["--query-compute-apps=pid,gpu_bus_id", "--format=csv,noheader"])
    placed = with_nodes(found, source.numa_of(buses, sysfs), source.nodes(sysfs))
    return placed, source.processes(apps, buses, Path("/proc"))


def _saved(matrix: Path, gpus: Path | None, sysfs: Path | None) -> tuple[Machine, list[Rank]]:
    from tracekit.errors import InputError, UsageError
    from tracekit.sizing.machines import sources as source
    from tracekit.sizing.machines.topology import parse_matrix, with_nodes

    if (gpus is None) != (sysfs is None):
        message = "--gpus and --sysfs go together"
        raise UsageError(message)
    try:
        found = parse_matrix(text_of(matrix, "matrix"))
    except InputError as error:
        raise InputError(error.message, path=matrix, hint=error.hint) from None
    if gpus is None or sysfs is None:
        return found, []
    return with_nodes(
        found, source.numa_of(source.saved_bus_ids(gpus), sysfs), source.nodes(sysfs)
    ), []


def _findings(page: Lines, found: tuple[Finding, ...]) -> None:
    from tracekit.wording.names import printable

    for one in found:
        page.title(one.level, one.level.value.upper(), printable(one.title))
        about = ", ".join(map(printable, one.subjects[:8]))
        rest = len(one.subjects) - 8
        page.fields(
            [
                ("About", about + (f" and {rest} more" if rest > 0 else "")),
                ("Advice", one.advice),
            ]
        )


def _places(page: Lines, machine: Machine) -> None:
    from tracekit.wording.numbers import count

    page.line()
    rows = []
    for place in machine.gpus.values():
        node = None if place.numa is None else machine.nodes.get(place.numa)
        cpus: Any = node or place.cpus or None
        numa = "unknown" if place.numa is None else f"{place.numa}"
        near = "unknown" if cpus is None else count(len(cpus))
        rows.append((f"GPU{place.gpu}", numa, near))
    page.columns(("GPU", "NUMA node", "CPUs near"), rows, (False, True, True), indent=2)


def _paths(page: Lines, classes: dict[str, tuple[tuple[int, int], ...]]) -> None:
    from tracekit.wording.numbers import count

    if not classes:
        return
    page.line()
    rows = [
        (name, count(len(pairs)), ", ".join(f"{a}-{b}" for a, b in pairs[:8]))
        for name, pairs in classes.items()
    ]
    page.columns(("path", "pairs", "between"), rows, (False, True, False), indent=2)
