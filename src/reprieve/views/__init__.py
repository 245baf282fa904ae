"""What people see of jobs: each view once, for the command line and everything else; read only."""
