"""The text format that Prometheus reads (version 0.0.4): families of samples, as lines.

    page.counter("klamm_requests_total", "Requests by API.")
    page.add(17, api="Produce")

A family is begun once, and its samples follow it. What the numbers mean is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.server.histogram import cumulative

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_IN_DOC = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Exposition:
    __slots__ = ("_lines", "_name")

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._name = ""

    def counter(self, name: str, doc: str) -> None:
        """What only grows, since the broker's start."""
        assert name.endswith("_total"), name
        self._begin(name, doc, "counter")

    def gauge(self, name: str, doc: str) -> None:
        self._begin(name, doc, "gauge")

    def counters(self, *families: tuple[str, float, str]) -> None:
        """Families of a single sample: name, value, doc."""
        for name, value, doc in families:
            self.counter(name, doc)
            self.add(value)

    def gauges(self, *families: tuple[str, float, str]) -> None:
        for name, value, doc in families:
            self.gauge(name, doc)
            self.add(value)

    def histogram(self, name: str, doc: str) -> None:
        assert name.endswith("_seconds"), name
        self._begin(name, doc, "histogram")

    def _begin(self, name: str, doc: str, kind: str) -> None:
        self._name = name
        self._lines += (f"# HELP {name} {doc.translate(_IN_DOC)}", f"# TYPE {name} {kind}")

    def add(self, value: float, **labels: str) -> None:
        self._lines.append(f"{self._name}{braced(labels)} {value}")

    def add_with(self, labels: str, value: float) -> None:
        """For those who have many samples with the same labels, and `braced` them once."""
        self._lines.append(f"{self._name}{labels} {value}")

    def add_durations(self, counts: Sequence[int], total_s: float, **labels: str) -> None:
        """A histogram's samples."""
        name, count = self._name, sum(counts)
        for bound, below in cumulative(counts):
            self._lines.append(f"{name}_bucket{braced({**labels, 'le': repr(bound)})} {below}")
        self._lines.append(f"{name}_bucket{braced({**labels, 'le': '+Inf'})} {count}")
        self._lines.append(f"{name}_sum{braced(labels)} {total_s}")
        self._lines.append(f"{name}_count{braced(labels)} {count}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def braced(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{value.translate(_IN_LABEL)}"' for name, value in labels.items())
    return "{" + inside + "}"
