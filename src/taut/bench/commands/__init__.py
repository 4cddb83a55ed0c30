"""``taut bench`` and ``taut demo``: a module for each benchmark."""

from __future__ import annotations

import click

from taut.bench.commands import backlog, lanes, plan, plan_together, queries, reduce

demo = queries.demo


@click.group()
def bench() -> None:
    """Measure stock Spark and Taut in one command, alternating."""


bench.add_command(queries.queries)
bench.add_command(lanes.lanes)
bench.add_command(backlog.backlog)
bench.add_command(reduce.reduce)
bench.add_command(plan.plan)
bench.add_command(plan_together.plan_together)
