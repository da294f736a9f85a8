"""Pipelines: a folder with a `pipeline.yml`, its SQL and Python, that runs as queries of Structured Streaming.

`spec` reads such a folder, `check` says what would not run and where it stands, before anything runs.
"""
