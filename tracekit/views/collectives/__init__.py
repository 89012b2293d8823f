"""From the host call to the collective of all ranks: calls, kernels, matching, overlap."""
