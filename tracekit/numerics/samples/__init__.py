"""Sampled counters: the cell of time that each sample stands for, and sums over windows."""
