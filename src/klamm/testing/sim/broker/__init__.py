"""One simulated broker under simulated clients and real trouble, and a model that knows what must be true.

`scenario.run_seed(seed)` is the whole of it; `python -m klamm.testing.sim.run --seed N` from a shell. What the clients
do is in `producer`, `consumer` and `churn`; what goes wrong around them in `chaos`; what may never happen in `model`
and `verify`.
"""
