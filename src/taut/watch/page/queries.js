// The queries, worst first: what each one's verdict is, what it waits for, and its last turns.

import { el, fill, Keyed, mark, put, Sight } from "./dom.js";
import { brief, NONE, round, time } from "./format.js";
import { Detail } from "./detail.js";
import { size, strip } from "./timeline.js";
import { Badge, kindOf, KINDS, ratio, standing, worstFirst } from "./verdict.js";

// A miss by less than the digits that are shown is still a miss.
function against(query, snapshot) {
  const { seconds } = standing(query, snapshot);
  const seen = time(seconds ?? query.latency?.p99);
  return seconds > query.objective && seen === time(query.objective) ? `> ${seen}` : seen;
}

// In a row there is room for the number, not for the sentence.
function waits(query, at) {
  if (query.error) return query.error;
  return query.state === "held" && query.due > at ? `Next window in ${brief(query.due - at)}` : query.waiting_for;
}

const ROOM = 1.5; // of the objective, the length of a bar

export class Queries {
  constructor(section) {
    this.section = section;
    this.span = 120;
    this.empty = el("p", { class: "empty" },
      "No query has been started yet. One shows here as soon as ", el("code", {}, "runtime.start(...)"), " returns.");
    this.detail = new Detail();
    this.legend = this.makeLegend();
    this.strips = el("th", { scope: "col", class: "strip" });
    this.body = el("tbody");
    this.table = el("table", { class: "queries" },
      el("thead", {}, el("tr", {},
        el("th", { scope: "col" }, "Verdict"), el("th", { scope: "col" }, "Query, and what it waits for"),
        el("th", { scope: "col" }, "Latency against objective"), el("th", { scope: "col", class: "number" }, "Slack"), this.strips)),
      this.body);
    this.axis = el("span", { class: "axis" }, el("span", {}, "2 min ago"), el("span", {}, "turns"), el("span", {}, "now"));
    this.strips.append(this.axis);
    section.append(this.empty, this.detail.node, this.legend, this.table);
    this.sight = new Sight((canvas) => this.draw(canvas));
    this.rows = new Keyed(this.body, (query) => this.makeRow(query));
    this.byCanvas = new WeakMap();
    this.width = 0;
    new ResizeObserver(() => {
      this.width = this.body.querySelector("td.strip")?.clientWidth ?? 0;
      this.redraw();
    }).observe(this.body);
  }

  makeLegend() {
    const span = (seconds, text) => {
      const button = el("button", { type: "button", "aria-pressed": String(seconds === this.span) }, text);
      button.addEventListener("click", () => {
        this.span = seconds;
        for (const one of this.spans) mark(one, "aria-pressed", String(one === button));
        put(this.axis.firstChild, `${text} ago`);
        this.redraw();
      });
      return button;
    };
    this.spans = [];
    this.spans.push(span(120, "2 min"), span(30, "30 s"));
    const key = (name, text) => el("span", { class: `key ${name}` }, el("i"), text);
    return el("div", { class: "legend" },
      key("held", "held"), key("planning", "planning"), key("run", "running"), key("late", "late"),
      el("span", { class: "spans", role: "group", "aria-label": "How far back the turns go" }, ...this.spans));
  }

  makeRow(query) {
    const badge = new Badge();
    const link = el("a", { href: `#queries/${encodeURIComponent(query.name)}` }, query.name);
    const waits = el("span", { class: "waits" });
    const [seen, bound] = [el("b"), el("span")];
    const length = el("i", { class: "length" });
    const bar = el("span", { class: "bullet" }, length, el("i", { class: "bound" }));
    const [slack, due] = [el("b"), el("span")];
    const canvas = el("canvas", { role: "img" });
    const node = el("tr", {},
      el("td", { class: "verdict" }, badge.node), el("th", { scope: "row" }, link, waits),
      el("td", { class: "latency" }, el("span", { class: "pair" }, seen, bound), bar),
      el("td", { class: "number" }, slack, due), el("td", { class: "strip" }, canvas));
    this.sight.add(canvas);
    return { node, badge, link, waits, seen, bound, length, bar, slack, due, canvas, gone: () => this.sight.drop(canvas) };
  }

  update(snapshot, chosen) {
    this.snapshot = snapshot;
    const queries = worstFirst(snapshot);
    const none = queries.length === 0;
    this.empty.hidden = !none;
    this.table.hidden = this.legend.hidden = this.detail.node.hidden = none;
    this.table.classList.toggle("dense", queries.length > 20);
    const found = queries.find((query) => query.name === chosen);
    const shown = found ?? queries[0];
    this.rows.update(queries, (query) => query.name, (row, query) => this.showRow(row, query, query === found));
    this.redraw();
    if (shown) this.detail.update(snapshot, shown, found !== undefined);
  }

  showRow(row, query, chosen) {
    const kind = kindOf(query);
    row.query = query;
    this.byCanvas.set(row.canvas, row);
    row.badge.show(kind);
    row.node.classList.toggle("chosen", chosen);
    put(row.waits, waits(query, this.snapshot.at));
    mark(row.waits, "title", query.error ?? query.waiting_for);
    put(row.seen, against(query, this.snapshot));
    put(row.bound, query.objective == null ? "" : ` / ${round(query.objective)}`);
    row.bar.hidden = query.objective == null;
    fill(row.length, ratio(query, this.snapshot) / ROOM);
    mark(row.length, "class", `length ${KINDS[kind].tone}`);
    const slack = query.slack?.value;
    put(row.slack, slack == null ? NONE : brief(slack));
    mark(row.slack, "class", slack == null ? "" : slack < 0 ? "missed" : slack < query.slack.cost ? "risk" : "");
    const wait = query.due == null ? null : query.due - this.snapshot.at;
    put(row.due, wait == null ? "" : wait >= 0 ? `due in ${brief(wait)}` : `due ${brief(-wait)} ago`);
    const late = (query.bars ?? []).reduce((sum, bar) => sum + (bar[6] > 0), 0);
    mark(row.canvas, "aria-label", `${query.bars?.length ?? 0} turns in the last two minutes, ${late} late`);
  }

  redraw() {
    for (const canvas of this.sight.seen) this.draw(canvas);
  }

  draw(canvas) {
    const row = this.byCanvas.get(canvas);
    if (!row || !this.width) return;
    size(canvas, this.width);
    strip(canvas, row.query, this.snapshot.at, this.span);
  }

  reset() {
    this.rows.clear();
  }
}
