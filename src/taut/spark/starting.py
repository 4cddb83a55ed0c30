"""What a runtime is given, and refuses when it is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from taut.errors import StartError
from taut.policy import POLICIES, Policy
from taut.spark.sinks import SinkFunction
from taut.spark.window import Shape, Window, inspect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STOCK = {
    "spark-default": "no gate: every query runs as fast as it can, as Spark does by itself",
    "spark-fair": "no gate, a FAIR scheduler pool for each query",
    "spark-trigger": "no gate, a processing-time trigger of each query's slide",
}
"""The stock baselines, to compare with."""


def named_policies() -> dict[str, str]:
    """The names that a policy can be given by, each with a line that says what it does."""
    ours = {n: (build().__class__.__doc__ or "") for n, build in POLICIES.items()}
    ours["least-slack"] = "Run, of the queries whose output is due, the one with least slack."
    return {n: d.strip().splitlines()[0] for n, d in ours.items()} | STOCK


def policy_of(policy: str | Policy) -> tuple[str, Policy]:
    """A policy with its name, from either."""
    if isinstance(policy, str):
        if policy in STOCK:
            return policy, POLICIES["fcfs"]()
        if policy not in POLICIES:
            known = ", ".join([*POLICIES, *STOCK])
            raise StartError(f"policy={policy!r} is not known; one of: {known}")
        return policy, POLICIES[policy]()
    if not callable(getattr(policy, "decide", None)):
        raise StartError(
            f"policy={policy!r}: a name, or an object with decide(now, queries) -> Decision"
        )
    return type(policy).__name__, policy


def refuse_wrong(df: DataFrame, name: str, sink: SinkFunction, checkpoint: str | Path) -> None:
    """Raise if a query cannot be started from these."""
    if not isinstance(name, str) or not name.strip():
        raise StartError(f"name={name!r}: a query needs a name that is not empty")
    if not getattr(df, "isStreaming", False):
        raise StartError(f"{name}: df is not a streaming DataFrame; make it with spark.readStream")
    if not callable(sink):
        raise StartError(
            f"{name}: sink={sink!r} is not callable; give a function (df, batch_id) "
            "or taut.sink('parquet', path=...)"
        )
    if not checkpoint or not str(checkpoint).strip():
        raise StartError(
            f"{name}: checkpoint={checkpoint!r}: a folder is needed, such as 'checkpoints/{name}'"
        )


def shape_of(df: DataFrame, given: Window | None, output_mode: str) -> Shape:
    """When the output of a query is due: from its plan, unless its window is given."""
    shape = inspect(df)
    if given is not None:
        return replace(shape, window=given, session=False)
    # in the other modes rows come out as they change, not when a window is complete
    return shape if output_mode.lower() == "append" else replace(shape, window=None)
