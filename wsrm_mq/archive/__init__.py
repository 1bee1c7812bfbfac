"""Archives: the settled messages of a store and all that is about them, as Parquet, kept for good, with a manifest that
retention can wait for.

An archive is of one store and lies in a directory. Its ``manifest.json`` is that of an export, with more fields, so
that a reader of exports reads archives too: it names every file that belongs to it, and is replaced when all of them
are on disk. A file that it does not name is no part of the archive.
"""
