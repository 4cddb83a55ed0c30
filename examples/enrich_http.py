"""Rows enriched by an HTTP service with one slow replica and pauses: five ways to deal them out.

    python examples/enrich_http.py [SECONDS]

Four replicas of a small service run on this machine, each in a process of its own. One of them
takes four times as long as the others, and each answers one call in 500 only after a third of a
second, as a service does that collects garbage or waits for a lock. Every lane has its replica. The
same stream runs with fixed ranges, as Spark cuts them, with replay, with balance, with both, and
with one queue and replay; the table shows how long rows took from arrival to the sink, and how long
batches took.
"""

from __future__ import annotations

import http.client
import http.server
import multiprocessing
import sys
import tempfile
import time
from http import HTTPStatus
from multiprocessing.connection import Connection
from typing import Any

import taut

REPLICAS = 4
CALL_S, SLOW_S, PAUSE_S, PAUSE_EVERY = 0.003, 0.012, 0.333, 500
RATE = 300
WAYS = {
    "fixed ranges": {"dispatch": "fixed"},
    "replay": {"dispatch": "fixed", "replay": "adaptive"},
    "balance": {"dispatch": "balance", "balanceEvery": "1 s"},
    "balance and replay": {"dispatch": "balance", "balanceEvery": "1 s", "replay": "adaptive"},
    "one queue and replay": {"dispatch": "shared", "replay": "adaptive"},
}


def serve(number: int, told: Connection) -> None:
    """A replica, until its process is ended."""

    class Price(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: two would wait for each other
        calls = 0

        def do_GET(self) -> None:
            Price.calls += 1
            paused = (Price.calls + 100 * number) % PAUSE_EVERY == 0
            time.sleep(PAUSE_S if paused else SLOW_S if number == 0 else CALL_S)
            body = f"{int(self.path[1:]) % 97 / 100:.2f}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Service(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """A caller may hang up: its call was given up because another lane was faster."""

    server = Service(("127.0.0.1", 0), Price)
    told.send(server.server_port)
    server.serve_forever()


def enrich(ports: list[int]) -> Any:
    """A function that asks the lane's replica for the price of a row."""
    kept: dict[int, http.client.HTTPConnection] = {}  # from call to call; empty when it is sent

    def price(row: dict[str, Any]) -> dict[str, Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        lane = 0 if context is None else context.partitionId()
        port = ports[lane % len(ports)]
        service = kept.setdefault(port, http.client.HTTPConnection("127.0.0.1", port, timeout=10))
        try:
            answer = ask(service, row["n"])
        except (OSError, http.client.HTTPException):
            answer = ask(service, row["n"])  # a connection that was kept may be stale: once more
        return {"n": row["n"], "price": answer}

    return price


def ask(service: http.client.HTTPConnection, n: int) -> float | None:
    """The price, or none where the service has none."""
    try:
        service.request("GET", f"/{n}")
        response = service.getresponse()
        answer = response.read()
    except BaseException:
        # also when the call is given up because another lane was faster: an answer that is
        # still to come must not be taken for that of the next call
        service.close()
        raise
    return float(answer) if response.status == HTTPStatus.OK else None


def measure(spark: Any, ports: list[int], how: dict[str, str], seconds: float) -> str:
    """Run the stream for twice as long, the first half of it for learning; a line of figures."""
    start = time.time() + 5
    rows = int(2 * seconds * RATE)
    stream = taut.read(
        spark, "schedule", start=start, rate=RATE, total=rows, arrivals="random", lanes=REPLICAS,
        startingOffsets="earliest", **how,
    ).map(enrich(ports), "n bigint, price double")  # fmt: skip
    late: list[float] = []
    written = 0

    def sink(df: Any, batch_id: int) -> None:
        nonlocal written
        arrivals = df.select("arrival").toArrow().column(0).cast("int64").to_pylist()
        now = time.time()
        late.extend(now - at / 1e6 for at in arrivals if at / 1e6 >= start + seconds)
        written += len(arrivals)

    with tempfile.TemporaryDirectory() as folder:
        writer = stream.load().writeStream.foreachBatch(sink)
        query = writer.option("checkpointLocation", folder).start()
        while written < rows and query.isActive:
            time.sleep(0.2)
        while query.isActive and not any(p["numInputRows"] for p in query.recentProgress):
            time.sleep(0.2)  # a batch is told of once it is committed
        progress = [p for p in query.recentProgress if p["numInputRows"]]
        stats = stream.stats()
        query.stop()
    if query.exception() is not None:
        raise SystemExit(f"the stream ended: {query.exception()}")
    late.sort()
    batches = sorted(p["durationMs"]["addBatch"] for p in progress[len(progress) // 2 :])
    cost = 0.0 if stats is None else stats.cost
    return (
        f"{late[len(late) // 2]:7.2f} {late[int(0.99 * len(late))]:8.2f} "
        f"{batches[len(batches) // 2]:10.0f} {batches[-1]:8.0f} {100 * cost:7.1f}"
    )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
    replicas, ports = [], []
    for number in range(REPLICAS):
        here, there = multiprocessing.Pipe()
        replica = multiprocessing.Process(target=serve, args=(number, there), daemon=True)
        replica.start()
        replicas.append(replica)
        ports.append(here.recv())
    spark = taut.session(f"local[{REPLICAS}]")
    print(f"{RATE} rows a second, {REPLICAS} lanes; about {len(WAYS) * (2 * seconds + 7):.0f} s")
    print(f"{'':20}  p50 s    p99 s   batch ms   worst   cost %")
    for way, how in WAYS.items():
        print(f"{way:20}{measure(spark, ports, how, seconds)}", flush=True)
    spark.stop()
    for replica in replicas:
        replica.terminate()


if __name__ == "__main__":
    main()
