"""A broker in a child process, for somebody's tests: starting it, talking to it, and leaving nothing behind.

The parent's side (`broker`, `aio`, `values`, `process`, `nursery`) is imported by test suites and must stay light:
nothing of the broker itself. The child's side is `child`, `control` and `guard`. The two share `channel` and `folder`.
"""
