"""What if another policy had decided: a recorded run, once more, under virtual time.

Rows arrive when they did and batches cost what they did; who runs when is decided by the same
policy classes, through the same :class:`taut.policy.turns.Turns`, as on Spark.
"""

from __future__ import annotations

from taut.sim.replay.run import Figures, Outcome, Replay, known_policies, replay

__all__ = ["Figures", "Outcome", "Replay", "known_policies", "replay"]
