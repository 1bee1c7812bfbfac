"""What the package costs, as figures of one run on one machine. See README.md."""
