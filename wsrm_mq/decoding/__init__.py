"""Bytes from the wire, described in words."""
