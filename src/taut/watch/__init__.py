"""See why a result was on time or late: latencies, trace, metrics, live page, report."""
