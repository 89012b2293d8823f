"""The KV cache: records from markers, layout in memory, copies, use, out-of-memory messages."""
