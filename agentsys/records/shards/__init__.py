"""Shards: many records in one file that only grows, and the way back to one file a record.

A record has one name in both layouts: its path under the log folder. `either` reads it wherever it is, so
that whoever lists a folder and reads the paths need not know of shards. Of a case that has a file and stands
in a shard too, the file counts.
"""
