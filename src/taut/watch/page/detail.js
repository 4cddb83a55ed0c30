// One query in full: its latencies against its objective, and the numbers behind its verdict.

import { Chart } from "./chart.js";
import { el, Facts, hide, put } from "./dom.js";
import { count, exact, NONE, percent, round, time } from "./format.js";
import { Badge, kindOf } from "./verdict.js";

const SPAN = 120;

// Below zero a share says little: how many times as many were late as may be, as in the report.
const overdrawn = (budget) => (budget < 0 ? `overdrawn ${(1 - budget).toFixed(1)}${"\u00a0"}x` : percent(budget));
// Of a largest latency none may be late, so that there is nothing to be a multiple of.
const left = ({ budget, late, slo }) => (budget < 0 && slo?.startsWith("max") ? `${count(late)} late, none may be` : overdrawn(budget));

export class Detail {
  constructor() {
    this.badge = new Badge();
    this.name = el("h2", { id: "chosen", tabindex: "-1" });
    this.why = el("p", { class: "why" });
    this.slo = el("span", { class: "slo" });
    this.back = el("a", { href: "#queries", class: "back" }, "show the worst");
    const words = el("div", { class: "words" },
      el("p", { class: "over" }, (this.over = el("span")), this.back),
      el("p", { class: "title" }, this.badge.node, this.slo), this.name, this.why);
    words.insertBefore(this.name, words.children[1]);
    this.facts = new Facts(words, "Numbers of this query");
    this.from = el("p", { class: "more" });
    words.append(this.from);
    this.place = el("div", { class: "plot" });
    this.caption = el("figcaption");
    this.figure = el("figure", {}, this.caption, this.place);
    this.none = el("p", { class: "empty" }, "No results yet: each one is a dot here, against the objective.");
    this.figure.append(this.none);
    this.node = el("article", { class: "detail", "aria-labelledby": "chosen" }, words, this.figure);
    this.chart = new Chart(this.place, {
      label: "Latency of results against the objective",
      y: time,
      top: () => (this.objective ?? 0) * 1.25,
      series: () => [
        { label: "on time", colour: "run", value: time, width: 0, paths: () => null, points: { show: true, size: 6, width: 0, fill: "run" } },
        { label: "late", colour: "missed", value: time, width: 0, paths: () => null, points: { show: true, size: 8, width: 0, fill: "missed" } },
        { label: "objective", colour: "bound", value: time, dash: [5, 4] },
      ],
    });
  }

  update(snapshot, query, chosen) {
    const { latency, slack } = query;
    const kind = kindOf(query);
    put(this.over, chosen ? "Chosen" : kind === "met" || kind === "no objective" || kind === "no data" ? "First in the list" : "Worst now");
    hide(this.back, !chosen);
    put(this.name, query.name);
    this.badge.show(kind);
    put(this.slo, query.slo ?? "no objective stated");
    const why = query.waiting_for ? query.waiting_for[0].toUpperCase() + query.waiting_for.slice(1) : "";
    put(this.why, query.error && !why.includes(query.error) ? `${why} ${query.error}` : why);
    // Windows have two latencies: from their end, and from when they were due, as the objective counts.
    const from = query.window ? "from when they were due" : "from when rows came";
    put(this.caption, `Latency of results ${from}, last two minutes`);
    put(this.from, !query.window ? "Latencies count from when rows came."
      : query.objective == null ? "p50 to max, and the list, count from a window's end; the chart from when it was due."
        : "p50 to max count from a window's end; by the objective, the chart and the list count from when it was due.");
    this.facts.show([
      ["by the objective", time(query.observed), query.observed > query.objective ? "missed" : ""],
      ["p50", time(latency?.p50)],
      ["p90", time(latency?.p90)],
      ["p99", time(latency?.p99)],
      ["p99.9", time(latency?.p999)],
      ["mean", time(latency?.mean)],
      ["max", time(latency?.max)],
      ["on time", exact(query.on_time)],
      ["budget left", left(query), query.budget < 0 ? "missed" : query.budget < 0.25 ? "risk" : ""],
      ["late / results", `${count(query.late ?? 0)} / ${count(query.results ?? 0)}`],
      ["work to come", time(slack?.cost)],
      ...["planning", "running"].filter((phase) => (this.phased ||= phase in (query.phases ?? {})))
        .map((phase) => [`${phase}, p50`, time(query.phases?.[phase]?.p50)]),
      ["held, in all", time(query.held_seconds)],
      ["window", query.window ? round(query.window[0]) : NONE],
    ]);
    this.draw(snapshot, query);
  }

  draw(snapshot, query) {
    const points = query.latencies ?? [];
    hide(this.none, points.length > 0);
    hide(this.place, points.length === 0);
    if (!points.length) return;
    const bound = (this.objective = query.objective);
    const at = points.map(([t]) => t);
    // Each counts from when it was due, as the objective does: of a batch some may be late and some not.
    const late = ([, seconds]) => bound != null && seconds > bound;
    const data = [
      [snapshot.at - SPAN, ...at, snapshot.at],
      [null, ...points.map((p) => (late(p) ? null : p[1])), null],
      [null, ...points.map((p) => (late(p) ? p[1] : null)), null],
    ];
    data.push(data[0].map(() => bound ?? null));
    const latest = `latest ${time(points.at(-1)[1])}${bound == null ? "" : `, objective ${round(bound)}`}`;
    this.chart.draw(snapshot.at - SPAN, snapshot.at, data, latest);
  }
}
