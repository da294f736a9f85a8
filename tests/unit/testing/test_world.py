from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from klamm.testing.sim.disk import DeadIncarnation
from klamm.testing.sim.incarnation import Killed
from klamm.testing.sim.world import EPOCH_MS, SimFailure, World

SCRIPT = os.path.join(os.path.dirname(__file__), "echo_world.py")


def digest(seed, hash_seed):
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, SCRIPT, str(seed)], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_a_seed_gives_the_same_trace_in_every_process():
    first, second, other = digest(1, "1"), digest(1, "2"), digest(2, "1")
    assert int(first.split()[0]) > 100
    assert first == second
    assert first != other


def test_time_is_the_machines_and_its_wall_clock_can_jump():
    with World(0) as world:
        clock = world.node("a").env.clock
        before = clock.time_ms()
        world.run(asyncio.sleep(1.5))
        assert clock.time_ms() - before == 1500
        assert before >= EPOCH_MS
        world.machine("a").clock.jump_ms(-10_000)
        assert clock.time_ms() < before


def test_the_disk_outlives_the_process_and_the_process_does_not_outlive_its_kill():
    async def write(env):
        env.files.write_atomically("a", b"data")
        await asyncio.sleep(100)
        env.files.write_atomically("a", b"never")

    async def main(world):
        node = world.node("broker")
        world.loop.call_later(1, world.kill, node)
        with pytest.raises(Killed):
            await node.run(write(node.env))
        await asyncio.sleep(200)
        assert world.node("broker").env.files.read("a") == b"data"

    with World(0) as world:
        world.run(main(world))


def test_jobs_run_after_a_while_and_never_for_the_dead():
    done = []

    def job(name):
        done.append(name)
        return name

    async def submit(env, *names):
        return [await env.executor.submit(job, name) for name in names]

    async def main(world):
        node = world.node("broker")
        assert await node.run(submit(node.env, "a", "b")) == ["a", "b"]
        node.incarnation.spawn(submit(node.env, "c"))
        await asyncio.sleep(0)
        world.kill(node)
        await asyncio.sleep(10)
        node.env.executor.close()
        assert done == ["a", "b"]

    with World(0) as world:
        world.run(main(world))


def test_closing_an_executor_does_what_was_submitted():
    done = []

    async def process(env):
        future = env.executor.submit(done.append, 1)
        env.executor.close()
        assert done == [1]
        await future

    async def main(world):
        node = world.node("broker")
        await node.run(process(node.env))

    with World(0) as world:
        world.run(main(world))


def test_a_crash_in_the_middle_of_a_write_ends_the_process_there():
    async def process(env, reached):
        file = env.files.open("a", create=True)
        try:
            file.append(b"x" * 100)
        except DeadIncarnation:
            env.network.sender  # noqa: B018 - a dead process may still run a little; nothing it does matters
            await asyncio.sleep(0)
            reached.append("alive")

    async def main(world, reached):
        node = world.node("broker")
        node.machine.disk.faults.crash(2, lambda: world.power_loss(node))
        with pytest.raises(Killed):
            await node.run(process(node.env, reached))
        await asyncio.sleep(1)

    with World(0) as world:
        reached = []
        world.run(main(world, reached))
        assert reached == []


def test_what_goes_wrong_unnoticed_fails_the_run():
    async def main(world):
        world.loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with World(0) as world, pytest.raises(SimFailure) as failure:
        world.run(main(world))
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


def test_the_end_of_a_world_is_quiet():
    async def stubborn():
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            raise ValueError("nobody hears this")

    async def main(world):
        node = world.node("broker")
        node.incarnation.spawn(stubborn())
        asyncio.get_running_loop().create_task(stubborn())
        await asyncio.sleep(1)

    with World(0) as world:
        world.run(main(world))


def test_a_world_is_buried_without_a_word_from_what_died_in_it():
    """Tasks of dead processes are closed, which runs their `finally` blocks. To them nothing may look as if it failed:
    they would say so in the log, long after the end."""
    heard = []

    async def wait_for(turn):
        await turn

    async def work(turn):
        for _ in range(3):
            try:
                try:
                    await asyncio.get_running_loop().create_future()
                finally:
                    turn.set_result(None)
                    asyncio.get_running_loop().call_later(1, heard.append, "a callback")
                    asyncio.get_running_loop().create_task(asyncio.sleep(1))
            except Exception as error:  # as jobs do that go on whatever happens
                heard.append(error)

    async def main(world):
        node = world.node("broker")
        turn = world.loop.create_future()
        node.incarnation.spawn(wait_for(turn))
        node.incarnation.spawn(work(turn))
        await asyncio.sleep(1)
        world.kill(node)

    with World(0) as world:
        world.run(main(world))
    assert heard == []
    assert world.loop.is_closed()
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
