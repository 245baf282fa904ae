"""How things look from outside, each written once for the command line and everything else; read only."""
