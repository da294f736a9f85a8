"""What the verbs share on top of the client's admin parts: failures in one sentence, and views that do without what a
cluster does not tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from klamm.cli.parsing import Failed

if TYPE_CHECKING:
    from klamm.client import Cluster
    from klamm.client.admin.placement import LogDir
    from klamm.client.errors import ClientError


_MOST_SHOWN: Final = 5


def refusal(errors: Mapping[Any, ClientError], what: str, hint: str = "") -> Failed:
    """One failure for all items that were refused."""
    sentences = [f"{what} {error.text}" for error in errors.values()]
    more = len(sentences) - _MOST_SHOWN
    return Failed("; ".join([*sentences[:_MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]), hint)


async def log_dirs(
    cluster: Cluster, brokers: Iterable[int], partitions: Iterable[tuple[str, int]] | None = None
) -> list[LogDir] | None:
    """What is in the log folders of these brokers; None where the cluster cannot or will not tell."""
    from klamm.client.admin.placement import Placement

    found = await Placement(cluster).describe_log_dirs(brokers, partitions)
    return None if found.errors else [folder for folders in found.values() for folder in folders]
