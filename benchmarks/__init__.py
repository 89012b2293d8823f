"""What tracekit costs, as ratios measured in one run."""
