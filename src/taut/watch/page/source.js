// Taut sources: what each lane does, who gets which share, and where rows wait.

import { Chart, SERIES } from "./chart.js";
import { el, Facts, fill, hide, icon, Keyed, mark, put } from "./dom.js";
import { amount, bytes, count, each, percent, rate, time } from "./format.js";

const MOST = 32; // partitions that are listed
const byName = new Intl.Collator("en", { numeric: true });

class Lane {
  constructor() {
    this.name = el("b");
    this.place = el("span", { class: "place" });
    this.busy = el("span", { class: "value" });
    this.length = el("i", { class: "length" });
    this.open = el("span", { class: "open" });
    this.sign = icon("risk");
    this.node = el("li", { class: "lane" },
      el("span", { class: "head" }, this.name, this.place, this.busy),
      el("span", { class: "track" }, this.length),
      el("span", { class: "foot" }, this.sign, this.open));
  }

  show(lane, busy, slow, now) {
    put(this.name, String(lane.lane));
    put(this.place, lane.place);
    put(this.busy, percent(Math.round((busy ?? 0) * 100) / 100));
    fill(this.length, busy);
    this.node.classList.toggle("slow", slow);
    this.sign.classList.toggle("off", !slow);
    const age = lane.open_since == null ? null : time(Math.max(0, now - lane.open_since));
    put(this.open, age === null ? "idle" : slow ? `straggler, open ${age}` : `chunk open ${age}`);
  }
}

class Block {
  constructor(source) {
    const unit = (this.unit = source.unit ?? "rows");
    const scale = (this.scale = unit === "bytes" ? bytes : count);
    const what = unit[0].toUpperCase() + unit.slice(1);
    this.title = el("h2");
    this.node = el("article", { class: "block" }, this.title);
    this.facts = new Facts(this.node, "Numbers of this source");
    this.laneList = el("ul", { class: "lanes" });
    this.lanes = new Keyed(this.laneList, () => new Lane());
    this.noLanes = el("p", { class: "empty" }, "No lane has asked for work yet.");
    this.node.append(el("h3", {}, "Lanes: share of the time at work, and the chunk each has open"), this.laneList, this.noLanes);
    const [left, right] = [el("div", { class: "plot" }), el("div", { class: "plot" })];
    this.parts = el("ul", { class: "bars" });
    this.partList = new Keyed(this.parts, () => this.makePart());
    this.noShares = el("p", { class: "empty" }, "Lanes have no shares of their own: dispatch=\"balance\" gives them.");
    this.noParts = el("p", { class: "empty" }, "Nothing waits in any partition.");
    this.more = el("p", { class: "more" });
    this.shareFigure = right;
    this.node.append(el("div", { class: "side" },
      el("figure", {}, el("figcaption", {}, `${what} waiting (left), and ${unit} a second (right)`), left),
      el("figure", {}, el("figcaption", {}, "Shares over time"), right, this.noShares)),
    el("h3", {}, `${what} waiting, by log partition`), this.parts, this.more, this.noParts);
    this.backlog = new Chart(left, {
      label: `${what} waiting and ${unit} a second`, y: scale, y2: scale,
      series: () => [
        { label: "waiting", colour: "run", value: (n) => amount(n, unit), fill: true },
        { label: "rate", colour: "c2", value: (n) => rate(n, unit), scale: "y2" },
      ],
    });
    this.names = Object.keys(source.shares ?? {});
    this.shares = new Chart(right, {
      label: "Shares over time", y: percent,
      series: () => this.names.map((name, n) => ({ label: name, colour: SERIES[n % SERIES.length], value: percent, paths: uPlot.paths.stepped({ align: 1 }) })),
    });
  }

  makePart() {
    const [name, value, length] = [el("span", { class: "name" }), el("span", { class: "value" }), el("i", { class: "length" })];
    return { node: el("li", {}, name, el("span", { class: "track" }, length), value), name, value, length };
  }

  show(source, now) {
    const lanes = source.lanes ?? [];
    const slow = new Set(source.stragglers ?? []);
    const [, waiting, speed] = source.history?.at(-1) ?? [];
    const { scale, unit } = this;
    put(this.title, source.query);
    this.facts.show([
      [`${unit} waiting`, scale(waiting ?? Object.values(source.backlog ?? {}).reduce((a, b) => a + b, 0))],
      ["rate", rate(speed, unit)],
      ["lanes", count(lanes.length)],
      ["open chunks", count(lanes.filter((lane) => lane.open_since != null).length)],
      ["stragglers", count(slow.size), slow.size ? "risk" : ""],
      ["handed out", amount(source.issued ?? 0, unit)],
      ["again", `${scale(source.replayed ?? 0)} (${percent(source.cost ?? 0)})`],
      ["replay after", source.timeout == null ? "not on" : each(source.timeout, unit)],
    ]);
    hide(this.noLanes, lanes.length > 0);
    this.lanes.update(lanes.map((lane, n) => [lane, source.busy?.[n]]), ([lane]) => lane.lane,
      (entry, [lane, busy]) => entry.show(lane, busy, slow.has(lane.lane), source.at ?? now));
    this.showParts(source.backlog ?? {});
    this.draw(source, now);
  }

  showParts(backlog) {
    const all = Object.entries(backlog).sort((a, b) => b[1] - a[1]);
    const most = Math.max(1, all[0]?.[1] ?? 1);
    const shown = all.slice(0, MOST).sort((a, b) => byName.compare(a[0], b[0]));
    hide(this.noParts, shown.length > 0);
    hide(this.more, all.length <= MOST);
    put(this.more, `and ${count(all.length - MOST)} partitions with less`);
    this.partList.update(shown, ([name]) => name, (part, [name, waiting]) => {
      put(part.name, name);
      mark(part.name, "title", name);
      put(part.value, this.scale(waiting));
      fill(part.length, waiting / most);
    });
  }

  draw(source, now) {
    const history = source.history ?? [];
    if (history.length) {
      this.backlog.draw(now - 120, now, [0, 1, 2].map((n) => history.map((point) => point[n])),
        `${amount(history.at(-1)[1], this.unit)} waiting, ${rate(history.at(-1)[2], this.unit)}`);
    }
    const shares = source.share_history ?? [];
    const names = Object.keys(source.shares ?? {}).slice(0, SERIES.length);
    hide(this.noShares, shares.length > 0 && names.length > 0);
    hide(this.shareFigure, !(shares.length && names.length));
    if (!shares.length || !names.length) return;
    if (names.join("\n") !== this.names.slice(0, names.length).join("\n")) {
      this.names = names;
      this.shares.remake();
    }
    const steps = [...shares, [now, source.shares]]; // told only when they change
    this.shares.draw(now - 120, now,
      [steps.map(([at]) => at), ...names.map((name) => steps.map(([, share]) => share[name] ?? null))],
      names.map((name) => `${name} ${percent(source.shares[name])}`).join(", "));
  }

  gone() {
    this.backlog.gone();
    this.shares.gone();
  }
}

export class Sources {
  constructor(section) {
    this.empty = el("p", { class: "empty" },
      "No query reads from a Taut source. One started with ", el("code", {}, "taut.read(...)"), " or ",
      el("code", {}, "spark.readStream.format(\"taut\")"), " shows its lanes here.");
    this.list = el("div");
    section.append(this.empty, this.list);
    this.blocks = new Keyed(this.list, (source) => new Block(source));
  }

  update(snapshot) {
    const sources = snapshot.sources ?? [];
    hide(this.empty, sources.length > 0);
    this.blocks.update(sources, ({ query, unit = "rows" }) => `${unit} ${query}`, (block, source) => block.show(source, snapshot.at));
  }

  reset() {
    this.blocks.clear();
  }
}
