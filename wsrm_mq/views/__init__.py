"""What the store says, read from its published views and put into words."""
