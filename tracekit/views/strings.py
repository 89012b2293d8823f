"""Interned strings: ids to text, with a placeholder for ids without a string."""

from __future__ import annotations

import polars as pl

from tracekit.model.catalog import STRING_ID_BITS

__all__ = ["placeholder", "resolved"]


def placeholder(column: str) -> pl.Expr:
    """Return ``<string 1234>`` for a string id, null for a null id."""
    return pl.format("<string {}>", pl.col(column) & ((1 << STRING_ID_BITS) - 1))


def resolved(frame: pl.DataFrame, strings: pl.DataFrame, text: str, text_id: str) -> pl.DataFrame:
    """Return `frame` with `text` filled from the interned strings where it is null.

    Args:
        frame: Has columns `text` (String) and `text_id` (Int64).
        strings: Catalog frame ``strings``.
        text: Column to fill.
        text_id: Column of ids; dropped.

    Returns:
        The frame in its order; ids without a string become `placeholder`.
    """
    looked_up = strings.select(pl.col("id").alias(text_id), pl.col("value").alias("_value"))
    joined = frame.join(looked_up, on=text_id, how="left", maintain_order="left")
    full = pl.coalesce(text, "_value", placeholder(text_id))
    return joined.with_columns(full.alias(text)).drop("_value", text_id)
