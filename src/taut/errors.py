"""What Taut raises. Every message names the option, the value given and what would be right."""


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


class LogError(TautError):
    """A log cannot be opened or read; says what was given and what would be right."""


class DataLost(LogError):
    """Rows that were promised are no longer in the log."""


class LogFull(LogError):
    """A memory log holds as many bytes as it may."""
