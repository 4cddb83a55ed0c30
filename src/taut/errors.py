"""What Taut raises. Messages name the option, the value given and what would be right."""


class TautError(Exception):
    """The base of everything Taut raises on purpose."""


class DurationError(TautError, ValueError):
    """A duration that cannot be read, such as ``"5 parsecs"``."""


class SloError(TautError, ValueError):
    """A latency objective that cannot be read, or cannot answer the question put to it."""


class EnvironmentProblem(TautError, RuntimeError):
    """This machine lacks something that Taut needs, such as Java 17."""


class StartError(TautError, ValueError):
    """A query that Taut refuses to start."""


class RuntimeStopped(TautError, RuntimeError):
    """Something was asked of a Runtime that has stopped."""


class WatchError(TautError, RuntimeError):
    """The live page cannot be served as asked: its address is taken, or its token is no token."""


class JobError(TautError, ValueError):
    """A job that cannot be run, or a function of it that failed; says which, on which row."""


class LogError(TautError):
    """A log cannot be opened or read; says what was given and what would be right."""


class DataLost(LogError):
    """Rows that were promised are no longer in the log."""


class LogFull(LogError):
    """A memory log holds as many bytes as it may."""


class Abandoned(BaseException):
    """Raised in a function of a lane when another lane has finished the chunk it works on.

    No :class:`Exception`, so that a function which catches those lets it pass. One that keeps
    something open from call to call, such as a connection, has to put it in order, and raise on.
    """


class PlanError(TautError, ValueError):
    """A plan that cannot be made from what was given; says what would be right."""


class ProfileError(PlanError):
    """A profile that cannot be read, or is not of this job, this Spark or this cluster."""
