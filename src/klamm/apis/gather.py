"""One answer made of several: for requests that ask many coordinators at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from klamm.apis.api import Answer, Pending, Response


def gathered(answers: Sequence[Answer], merge: Callable[[Sequence[Any]], Response]) -> Answer:
    """What `merge` makes of all of them, in their order, when the last one is there. None of them may be a coroutine.
    Whoever does not want it any more wants none of them."""
    results: list[Any] = list(answers)
    waiting = {index: answer for index, answer in enumerate(answers) if isinstance(answer, Pending)}
    if not waiting:
        return merge(results)

    def cancel() -> None:
        for part in waiting.values():
            part.cancel()

    whole = Pending(cancel)

    def arrived(index: int, response: Response) -> None:
        results[index] = response
        del waiting[index]
        if not waiting:
            whole.set(merge(results))

    for index, part in list(waiting.items()):
        part.then(lambda response, index=index: arrived(index, response))  # type: ignore[misc]
    return whole
