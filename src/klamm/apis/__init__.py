"""The APIs of the protocol: one module for each key, named after it (`k00_produce.py`), found by `registry`.

A handler turns a request into calls on the layers below and their results into a response; what is not about the
wire does not live here. Handlers never change the metadata image and never block the loop.
"""
