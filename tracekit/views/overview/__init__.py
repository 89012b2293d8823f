"""Totals and data quality that every answer begins with, and frames for timelines."""
