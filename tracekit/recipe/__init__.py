"""tracekit as a recipe of Nsight Systems: ``nsys recipe tracekit_diagnosis --input REPORT...``.

The folder ``tracekit_diagnosis`` next to this file is the recipe: put this folder into
``NSYS_RECIPE_PATH``, or copy the recipe anywhere with ``tracekit recipe install``. It holds only
what nsys needs to find its class; all else is here, in the installed tracekit. nsys's own
framework, `nsys_recipe`, is imported only where nsys runs the recipe.
"""
