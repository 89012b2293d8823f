"""Starved and idle stretches with known answers."""

from __future__ import annotations

import numpy as np

from tracekit.numerics.samples import sampling, starvation

TIMES = np.arange(10, 101, 10)
READ = [85, 88, 90, 20, 15, 18, 70, 86, 87, 20]
TENSOR = [5, 4, 6, 3, 2, 2, 40, 5, 4, 50]


def test_starvation_and_valley() -> None:
    read, tensor = sampling.cells(TIMES, READ), sampling.cells(TIMES, TENSOR)
    assert [part.tolist() for part in starvation.starved(read, tensor)] == [[10, 80], [40, 100]]
    assert [part.tolist() for part in starvation.valleys(read, tensor)] == [[40], [70]]


def test_time_without_tensor_samples_is_neither() -> None:
    read = sampling.cells(TIMES, READ)
    tensor = sampling.cells(TIMES, TENSOR).keep(TIMES > 30)
    assert [part.tolist() for part in starvation.starved(read, tensor)] == [[80], [100]]


def test_coarse_sampling_is_unknown() -> None:
    read, tensor = (sampling.cells(TIMES * 10_000, values) for values in (READ, TENSOR))
    assert starvation.starved(read, tensor) is None
    assert starvation.valleys(read, tensor) is None
