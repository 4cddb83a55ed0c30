from __future__ import annotations

import taut


def test_the_public_names_are_these() -> None:
    assert sorted(taut.__all__) == [
        "Abandoned",
        "Cluster",
        "DataLost",
        "Demand",
        "EnvironmentProblem",
        "Infeasible",
        "Job",
        "JobError",
        "LogError",
        "LogFull",
        "MemoryLog",
        "Plan",
        "PlanError",
        "Profile",
        "ProfileError",
        "Query",
        "Read",
        "ReduceStats",
        "Reduced",
        "Runtime",
        "RuntimeStopped",
        "Settings",
        "SharedPlan",
        "Slo",
        "SloError",
        "StartError",
        "Stats",
        "Status",
        "TautError",
        "WatchError",
        "Window",
        "__version__",
        "map_reduce",
        "plan",
        "plan_together",
        "read",
        "register",
        "session",
        "sink",
    ]
    assert all(hasattr(taut, name) for name in taut.__all__)
