"""This process and its machine: processes, memory, limits, intercepted calls, files, progress."""
