"""Worker processes on this machine: the parent's side of them, and what runs in them.

the parent      coordinator   one thread: gives tasks, takes batches in, has a dead worker's batch made again
                assignments   which worker gets which tasks (pure)
                pool          starts the workers, and replaces those that die; it tells the coordinator
                helpers       the helper in charge, and another in its place
                handles       one worker, one helper, as the parent knows them
                stalls        workers that do not answer
                waker         from the user's thread to the coordinator's
other processes helper        forks workers
                worker        makes batches
both            messages      what they say to each other
"""
