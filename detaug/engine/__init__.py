"""Batches in a fixed order, independent of the process that makes each one.

ARCHITECTURE.md describes the life of a batch and the death of a worker. Three facts explain most of
the care that is taken here:
- Any process may be stopped or killed between any two instructions. No lock is shared between
  processes, and no read waits for a writer.
- KeyboardInterrupt may be raised between any two bytecodes of the user's thread. Every fact changes
  by one operation, and the position moves last.
- A forked process has all the memory and no threads of its parent. Helpers are forked early, and a
  fork of the user's process cannot use the engine.

This module imports nothing, so that a fresh helper process starts in milliseconds.
"""
