"""DataFrames into topics, exactly once.

A task writes its rows in a transaction of its own and leaves it open (`task`). When all tasks are done, the driver
writes down which transactions count (`decisions`), and only then ends them (`driver`): those that count are committed,
others of the same sink aborted. Whatever dies in between, the next one finds either no decision, and does all of it
again, or a decision, and carries it out. That also holds if the rows come in other tasks the second time, if a task
runs twice at once, and if a driver that was thought dead comes back.
"""
