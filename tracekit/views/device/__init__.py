"""All device work on one list, its kernels by class, its GPUs with their peaks."""
