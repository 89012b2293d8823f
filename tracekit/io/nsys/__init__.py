"""Raw tables of Nsight Systems, and marker files of the injector, to canonical frames."""
