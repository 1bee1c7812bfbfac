"""What the package has to do, as tables of ids, and the count of what tests have shown of it."""
