"""What both analyses of collectives print: names of operations, denominators, shared findings."""
