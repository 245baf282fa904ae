"""What people do to jobs: each action once, for the Python API, the command line and everything else."""
