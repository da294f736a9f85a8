"""`python -m klamm.testing.sim.run`: run seeds of the simulated broker, one or many, and say which of them fail.

python -m klamm.testing.sim.run --seed 17 --trace     one seed, with everything that happens in it
python -m klamm.testing.sim.run --seeds 0-999         many, with the failing ones listed at the end
python -m klamm.testing.sim.run --transactions ...    the stories of transactional clients instead
python -m klamm.testing.sim.run --compaction ...      those of a topic that is compacted all the time
python -m klamm.testing.sim.run --membership ...      those of groups of both protocols, with every kind of death
"""

from __future__ import annotations

import argparse
import sys
import traceback

from klamm.testing.sim.broker.scenario import run_seed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m klamm.testing.sim.run", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--seeds", metavar="FIRST-LAST", help="run many seeds")
    parser.add_argument("--transactions", action="store_true", help="clients with transactions, and kills only")
    parser.add_argument("--compaction", action="store_true", help="a compacted topic, and every kind of death")
    parser.add_argument("--membership", action="store_true", help="groups of both protocols, and every kind of death")
    parser.add_argument("--trace", action="store_true", help="print everything that happened")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    else:
        first, _, last = (options.seeds or "0-99").partition("-")
        seeds = range(int(first), int(last or first) + 1)
    story = next((name for name in _STORIES if getattr(options, name)), "")
    failed = [seed for seed in seeds if not _run(seed, story, trace=options.trace)]
    if len(seeds) > 1:
        _say(f"{len(seeds) - len(failed)} of {len(seeds)} seeds passed; failed: {failed or 'none'}")
    return 1 if failed else 0


def _run(seed: int, story: str, *, trace: bool) -> bool:
    lines: list[str] = []
    run = _STORIES.get(story, _broker)
    try:
        done = run(seed, lines if trace else None)
    except Exception:  # noqa: BLE001 - a failing seed is the result, whatever it raised
        _say("\n".join(lines))
        which = f"--{story} " if story else ""
        _say(f"seed {seed} FAILED; run it again with: python -m klamm.testing.sim.run {which}--seed {seed} --trace")
        _say(traceback.format_exc())
        return False
    _say("\n".join(lines))
    _say(f"seed {seed}: {done}")
    return True


def _broker(seed: int, lines: list[str] | None) -> str:
    outcome = run_seed(seed, trace_into=lines)
    done = f"{outcome.lives} lives, {outcome.records} records, {outcome.events} events"
    return f"{done}, trace {outcome.digest}"


def _transactions(seed: int, lines: list[str] | None) -> str:
    from klamm.testing.sim.transactions.story import run_seed

    told = run_seed(seed, trace_into=lines)
    done = f"{told.kills} kills, {told.committed} of {told.transactions} transactions committed, {told.records} records"
    return f"{done}, trace {told.digest}"


def _compaction(seed: int, lines: list[str] | None) -> str:
    from klamm.testing.sim.compaction import run_seed

    told = run_seed(seed, trace_into=lines)
    return f"{told.deaths} deaths, {told.rounds} rounds, {told.written} records, trace {told.digest}"


def _membership(seed: int, lines: list[str] | None) -> str:
    from klamm.testing.sim.membership.story import run_seed

    told = run_seed(seed, trace_into=lines)
    done = f"{told.lives} lives, {told.generations} generations, {told.epochs} epochs, {told.commits} commits"
    return f"{done}, trace {told.digest}"


_STORIES = {
    "transactions": _transactions,
    "compaction": _compaction,
    "membership": _membership,
}


def _say(text: str) -> None:
    if text:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
