"""Joins and projections of a trace that several analyses share, each computed once."""
