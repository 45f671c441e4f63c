"""Worker processes on this machine: the parent's side of them, and the code that runs in them.

| process | module | task |
|---|---|---|
| parent | coordinator | One thread: assigns tasks, takes in batches, requeues tasks. |
| parent | pool | Starts helper, workers and checker, and replaces those that die. |
| parent | handles | One worker, one helper, as the parent knows them. |
| parent | stall_watch | Finds workers that do not respond. |
| helper | helper | Starts workers. |
| worker | worker | Makes batches. |
| all | messages | The messages between them. |
"""
