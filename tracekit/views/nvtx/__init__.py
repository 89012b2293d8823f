"""nvtx."""
