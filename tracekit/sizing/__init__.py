"""From hardware facts, a model's shape and metrics to a decision: what can be reached, by what.

Pure functions on numbers and small tables: nothing here opens a report. Quantities are decimal
(GB = 1e9 bytes, tera = 1e12); times are in the unit that a name ends in. A number that cannot be
known is ``None``, and the result says what it would take (``Missing``).
"""

from __future__ import annotations
