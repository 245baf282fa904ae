"""The worker: runs jobs, settles them, and survives whatever they do."""
