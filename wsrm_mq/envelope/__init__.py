"""Envelopes as bytes: the headers of a request are scanned, and answers are rendered.

Only ``wsdl`` needs lxml.
"""
