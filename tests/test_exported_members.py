from __future__ import annotations

import taut


def test_the_public_names_are_these() -> None:
    assert sorted(taut.__all__) == [
        "Abandoned",
        "DataLost",
        "EnvironmentProblem",
        "Job",
        "JobError",
        "LogError",
        "LogFull",
        "MemoryLog",
        "Query",
        "Read",
        "ReduceStats",
        "Reduced",
        "Runtime",
        "RuntimeStopped",
        "Slo",
        "SloError",
        "StartError",
        "Stats",
        "Status",
        "TautError",
        "Window",
        "__version__",
        "map_reduce",
        "read",
        "register",
        "session",
        "sink",
    ]
    assert all(hasattr(taut, name) for name in taut.__all__)
