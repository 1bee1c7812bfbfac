"""The store's published views, read and put into words."""
