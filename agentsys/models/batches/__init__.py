"""Batches: the requests of many cases sent together, for half the price and a reply within hours.

A case's thread hands its request to the model's `Collector` and waits; the collector sends what has come
together, asks from time to time whether the batch has ended, and hands out the replies. What was sent is in a
`BatchJournal` before it is paid for, so that a killed run finds its batches again. How a vendor takes a batch
is its provider's business (`agentsys.models.providers`).
"""
