"""Archives: what a store has settled, as Parquet for good, with a manifest that retention can wait for.

An archive is of one store and lies in a directory. Its ``manifest.json`` is that of an export, with more in it, so that
whatever reads exports reads archives: it names every file that belongs to it, and is replaced when all of them are on
disk. What it does not name is no part of the archive.
"""
