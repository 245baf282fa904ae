"""The worker: runs jobs and settles them, whatever they do to its processes. `worker.parts` describes its parts."""
