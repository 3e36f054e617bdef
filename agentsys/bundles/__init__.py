"""Bundles: the records of a log folder, and all that it takes to make them again, as one file.

`packing` reads a log folder, `archive` is the border to files that strangers made, `rerun` runs the cases
of a bundle from its own replies, and `verify` says of each what is equal, what differs and why. How that is
printed is the command's business; no model is ever asked here.
"""
