"""Collectives that are slower while other work runs: groups, loss, windows, co-runners."""
