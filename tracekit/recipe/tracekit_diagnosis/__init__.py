"""The recipe as nsys finds it: a folder with ``metadata.json`` and the module that it names."""
