"""Idle time on arrays: gaps, waits of threads, causes, budgets of windows, predictions."""
