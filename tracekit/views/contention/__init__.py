"""contention."""
