"""Batches in a fixed order, independent of the process that makes each one.

A batch's way, with worker processes:

    user            next() ─────────────► Schedule.take(): is the due batch there?   yes: it is handed out
                                              │ no: wait                             and the position moves
    coordinator     given_out() ──────────────┤ which worker makes which of the steps that are wanted
      (a thread)        │ Make              │
    worker              ▼                     │
                    Producer.make(epoch, step): reseed every generator, take from the source, transform
                        │ InSlot (the arrays lie in shared memory), or Inline where it is small
    coordinator         ▼                     │
                    Schedule.finish() ────────┘ the user is woken if that was the due one
    user            its arrays are views of the slot; when the last is garbage-collected, the slot goes back to its worker

A worker's death:

    kernel          ends the worker (SIGKILL, out of memory, a crash)
    helper          reaps it: Exited ──► Pool: takes in what it had still sent, and removes it
    Pool            died ──► Coordinator: the batch it was making is wanted again, and counted: `max_restarts` of the same
                                        batch in a row are an error; those that waited at it are wanted again
    Pool            Start ──► helper: forks another worker, as pristine as the first
    worker          makes the batch with the same bytes: they follow from (pipeline, seed, epoch, step) alone

What may look like needless care is about three facts. Any process may be stopped or killed between any two instructions, so
no lock is shared between processes and no read waits for a writer. KeyboardInterrupt may come between any two bytecodes of
the user's thread, so every fact changes by one operation and the position moves last. A process that was forked has all
memory and no threads of the one it came from, so helpers are forked early, and a fork of the user's process is told that it
has no engine.

This module imports nothing, so that a fresh helper process starts in milliseconds.
"""
