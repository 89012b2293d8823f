"""Recording a run: finding nsys, spelling its options, starting the program, making the export.

`nsys` finds the profiler and reads what it can do, `options` spells a recording for that version,
`supervise` runs a program as if it had been started directly, `convert` makes the SQLite export,
`markers` gathers the sidecars, `session` puts the steps together, `doctor` checks a machine.
"""

from __future__ import annotations
