"""What things are: tables, the catalog, traces, markers, kernels, hardware, findings."""
