"""Array kernels: arrays in, arrays out; nothing here knows a trace, a file or a table.

Import the module that you need (``from tracekit.numerics import intervals``). Importing any of
them loads numpy but not Numba, which the first call of a compiled kernel loads.

Conventions of every function:
    Times are int64 nanoseconds and intervals are half-open, ``[start, end)``. Index results use -1
    for "none". A float result that cannot be known is ``nan``; an integer one carries a mask.
"""
