"""DataFrames into topics, exactly once.

A task writes its rows in a transaction of its own and leaves it open (`task`). When all tasks are done, the driver
writes down which transactions count (`decisions`), and only then ends them (`driver`): those that count are committed,
others of the same sink aborted. Whatever dies in between, the next one finds either no decision, and does all of it
again, or a decision, and carries it out. That also holds if the rows come in other tasks the second time, if a task
runs twice at once, and if a driver that was thought dead comes back.

Why this is so:

- One decision for each batch. It is a record and a group's offset in one transaction, whose id is the sink's. Who takes
  that id over fences everybody before, and what they were about to decide is aborted or seen. So decisions are made one
  after the other, and nobody decides about a batch that was decided. A stream repeats its last batch only: with one
  before that it goes by an old checkpoint, may have other rows in it, and is refused.
- What counts is committed, all of it. Before a decision all of its transactions are seen open, at the epoch that their
  tasks had. From there on nobody but a driver that carries the decision out ends them: two-phase transactions do not
  time out (others are not decided about if they are about to); ids of transactions are used by one process only, and
  again only when it has seen the one before committed; what a driver finds open and aborts stands in its own decision
  first, and who decides next does not count it, even if that is still open (a driver is often alone, but it cannot
  know); and a commit that has failed half way is not followed by an abort (Spark asks for it) if it may have decided.
- A decision is carried out before the next one. Who commits reads the last decision first, and commits what is open of
  it, also if the batch at hand has no rows. Until then all of it is open, or was committed by somebody.
- Nothing else is seen. What was not decided stays open until the next decision of its sink, which aborts it. A task
  that finds its batch decided when it has written ends its own. And a driver whose run has ended decides once more, if
  it can: the same as before, but for what that run has open, which is aborted (`driver.give_up`, by `spark.stopped`).

That a task asks whether its batch is decided only saves work; a group that was forgotten costs a search, not a batch.
`once` is for batch writes without a name, which nobody repeats. docs/spark.md tells users what to expect.
"""
