"""Batches in a fixed order, independent of the process that makes each one; the life of one batch,
and a worker's death, are in ARCHITECTURE.md.

What may look like needless care is about three facts. Any process may be stopped or killed between
any two instructions, so no lock is shared between processes and no read waits for a writer.
KeyboardInterrupt may come between any two bytecodes of the user's thread, so every fact changes by
one operation and the position moves last. A process that was forked has all memory and no threads
of the one it came from, so helpers are forked early, and a fork of the user's process is told that
it has no engine.

This module imports nothing, so that a fresh helper process starts in milliseconds.
"""
