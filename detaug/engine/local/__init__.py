"""Worker processes on this machine: the parent's side of them, and what runs in them.

the parent      coordinator   one thread: gives tasks, takes batches in, has a dead worker's batch
made again
                pool          starts the helper, the workers and the checker, and replaces those
                that die; tells the coordinator handles       one worker, one helper, as the parent
                knows them; workers that do not answer
other processes helper        forks workers
                worker        makes batches
both            messages      what they say to each other
"""
