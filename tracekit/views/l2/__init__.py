"""L2 hit rates of kernels and layers, sampled or counted by Nsight Compute."""
