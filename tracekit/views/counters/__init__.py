"""Sampled hardware counters of a GPU, by name, and their means over windows."""
