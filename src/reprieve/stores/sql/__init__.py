"""What the stores on SQL databases do alike: each passes in its transaction and its statements."""
