"""What tests of applications and of stores need. Nothing of the product imports it."""
