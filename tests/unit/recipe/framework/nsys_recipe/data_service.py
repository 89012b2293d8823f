"""Exports: ``nsys export`` is a copy of ``<stem>.capture``, which may be missing."""

from __future__ import annotations

import shutil
from pathlib import Path

from nsys_recipe import OLD
from nsys_recipe.log import logger


class _Service:
    def __init__(self, report_path):
        self._report = Path(report_path)

    def _read(self, tables, hints):
        assert hints["format"] == "sqlite"
        capture = self._report.with_suffix(".capture")
        if not capture.exists():
            logger.error(f"Failed to export {self._report}")
            return None
        shutil.copyfile(capture, hints["path"])
        return dict.fromkeys(tables)


class _Old(_Service):
    def read_tables(self, table_column_dict, hints=None):
        return self._read(table_column_dict, hints)


class _New(_Service):
    def __init__(self, report_path, parsed_args=None):
        super().__init__(report_path)
        assert parsed_args is not None
        self._queued = {}

    def queue_table(self, table, columns=None):
        self._queued[table] = columns

    def read_queued_tables(self, refine=True, hints=None):
        return self._read(self._queued, hints)


DataService = _Old if OLD else _New
