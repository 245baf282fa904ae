"""What people do to jobs, each written once for the Python API, the command line and everything else."""
