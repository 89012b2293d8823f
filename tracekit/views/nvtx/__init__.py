"""NVTX rows as ranges, marks, markers of the injector and decoded payloads."""
