"""From a latency objective to a configuration: the model and the search. No Spark, no clock.

:mod:`~taut.planning.profile` has what was measured, :mod:`~taut.planning.phases` what a batch
costs, :mod:`~taut.planning.latency` what follows for rows and windows,
:mod:`~taut.planning.trials` what a profile tries, :mod:`~taut.planning.search` looks
for settings, :mod:`~taut.planning.plan` says what was found. Of several queries on one cluster,
:mod:`~taut.planning.turns` has how long they wait for each other, :mod:`~taut.planning.following`
follows their batches, :mod:`~taut.planning.runner` has one of them,
:mod:`~taut.planning.together` looks for who runs when, and
:mod:`~taut.planning.shared` says what was found. :mod:`~taut.planning.resident` is all of it for
lanes that are resident. What touches Spark is in :mod:`taut.spark.planning`; :func:`taut.plan`,
:func:`taut.plan_together` and :func:`taut.plan_resident` do it all.
"""
