"""The ratios of Klamm to Apache Kafka as a picture: a point for each row, its spread, and where the aim is."""

from __future__ import annotations

import statistics
from pathlib import Path

from versus import PLACES

COLOURS = {"kafka-one": "#1f6feb", "kafka-both": "#d97706", "kafka-groups": "#7c3aed"}
LABELS = {
    "kafka-one": "broker on one core, clients on the other",
    "kafka-both": "broker and clients on both cores",
    "kafka-groups": "the same, groups and transactions",
}
SHIFT = {"kafka-one": -0.17, "kafka-both": 0.17, "kafka-groups": 0.0}


def draw(path: Path, ratios: dict[str, dict[str, list[float]]], caption: str) -> bool:
    """Writes the PNG; False where matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    every = {row.what: row for place in PLACES.values() for row in place.rows()}
    shown = [row for row in every.values() if any(row.what in found for found in ratios.values())]
    figure, axes = pyplot.subplots(figsize=(11, 1.6 + 0.27 * len(shown)), layout="constrained")
    for place in PLACES:
        found = ratios.get(place, {})
        points = [(index, found[row.what]) for index, row in enumerate(shown) if row.what in found]
        if not points:
            continue
        middles = [statistics.median(values) for _, values in points]
        below = [middle - min(values) for middle, (_, values) in zip(middles, points, strict=True)]
        above = [max(values) - middle for middle, (_, values) in zip(middles, points, strict=True)]
        heights = [index + SHIFT[place] for index, _ in points]
        axes.errorbar(
            middles, heights, xerr=[below, above], fmt="o", ms=4, lw=1, color=COLOURS[place], label=LABELS[place]
        )
    aims = [(index, row.aim) for index, row in enumerate(shown) if row.aim]
    axes.plot([aim for _, aim in aims], [index for index, _ in aims], "|", color="#15803d", ms=9, label="to reach")
    axes.axvline(1, color="#6b7280", lw=1)
    axes.set_xscale("log")
    ticks = [0.25, 0.5, 1, 2, 4, 8, 16, 32]
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(shown)), [row.what for row in shown], fontsize=8)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(axis="x", color="#e5e7eb")
    axes.set_axisbelow(True)
    axes.set_xlabel("how many times as good as Apache Kafka: median of the rounds, smallest and largest", fontsize=9)
    axes.legend(loc="upper center", bbox_to_anchor=(0.3, -0.05), ncols=3, fontsize=8, frameon=False)
    figure.suptitle(caption, fontsize=10)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return True
