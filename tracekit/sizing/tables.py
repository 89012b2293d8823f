"""Small tables of measurements: a CSV file with named columns, and what may stand in a cell."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit.errors import InputError

__all__ = ["Table", "read_csv"]

_ABSENT = frozenset({"", "-", "na", "n/a", "nan", "null", "none", "[n/a]", "[not supported]"})


@dataclass(frozen=True, slots=True)
class Table:
    """A table as text.

    Attributes:
        path: Where it was read from.
        columns: Cells of each column by its name.
    """

    path: Path
    columns: Mapping[str, Sequence[str]]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(self.columns)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def column(self, *names: str) -> str | None:
        """Return the first of `names` that is a column; None if none is."""
        return next((name for name in names if name in self.columns), None)

    def texts(self, name: str) -> list[str]:
        """Return a column as text.

        Raises:
            InputError: There is no such column.
        """
        if name not in self.columns:
            message = f"no column {name!r}"
            raise InputError(message, path=self.path, hint=f"there are: {', '.join(self.names)}")
        return [cell.strip() for cell in self.columns[name]]

    def numbers(self, name: str) -> list[float | None]:
        """Return a column as finite numbers, None where a cell is empty or states no number.

        A unit after a blank is ignored (``312.40 W``).

        Raises:
            InputError: There is no such column, or a cell holds something else.
        """
        return [self._number(name, i, cell) for i, cell in enumerate(self.texts(name), 2)]

    def _number(self, name: str, line: int, cell: str) -> float | None:
        if cell.lower() in _ABSENT:
            return None
        try:
            value = float(cell.split(" ", 1)[0])
        except ValueError:
            message = f"line {line}, column {name!r}: {cell[:40]!r} is no number"
            raise InputError(message, path=self.path) from None
        return value if math.isfinite(value) else None


def read_csv(path: Path) -> Table:
    """Return the table that a CSV file holds, its first line the names.

    Raises:
        InputError: The file cannot be read, has no rows, or a row has another number of cells.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, skipinitialspace=True) if row]
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise InputError(message, path=path) from None
    except (UnicodeDecodeError, csv.Error) as error:
        message = f"not a CSV file: {error}"
        raise InputError(message, path=path) from None
    if len(rows) < 2:
        message = "no rows below the names of the columns"
        raise InputError(message, path=path)
    names = [name.strip() for name in rows[0]]
    if len(set(names)) != len(names):
        message = "two columns have the same name"
        raise InputError(message, path=path)
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            message = f"line {number} has {len(row)} cells, the first line {len(names)}"
            raise InputError(message, path=path)
    return Table(path, {name: [row[i] for row in rows[1:]] for i, name in enumerate(names)})
