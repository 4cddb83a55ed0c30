// Reduces: what came out on time, what was late, what was shed and why, and where the keys live.

import { Chart } from "./chart.js";
import { el, Facts, fill, hide, Keyed, put } from "./dom.js";
import { bytes, count, percent, round } from "./format.js";

class Block {
  constructor() {
    this.title = el("h2");
    this.node = el("article", { class: "block" }, this.title);
    this.facts = new Facts(this.node, "Numbers of this reduce");
    const place = el("div", { class: "plot" });
    this.reasons = el("ul", { class: "bars" });
    this.reasonList = new Keyed(this.reasons, () => this.makeBar());
    this.nothing = el("p", { class: "empty" }, "Nothing has been shed: every row could make its deadline.");
    this.keys = el("ul", { class: "bars" });
    this.keyList = new Keyed(this.keys, () => this.makeBar());
    this.node.append(
      el("figure", {}, el("figcaption", {}, "Rows of each batch, by what became of them"), place),
      el("div", { class: "side" },
        el("div", {}, el("h3", {}, "Shed, by reason"), this.reasons, this.nothing),
        el("div", {}, el("h3", {}, "Keys in memory (hot) and in the store (cold)"), this.keys)));
    const columns = uPlot.paths.bars({ size: [0.7, 14] });
    const over = { paths: columns, width: 0 };
    // Stacked: the tallest is drawn first, and the legend still tells each one's own rows.
    const own = (n) => (_, v, __, i) => (i == null || v == null ? "" : count(this.history[i]?.[n] ?? 0));
    this.chart = new Chart(place, {
      height: 190, label: "Rows of each batch", y: count,
      series: () => [
        { label: "shed", colour: "missed", fill: "missed", own: own(3), ...over },
        { label: "late", colour: "risk", fill: "risk", own: own(2), ...over },
        { label: "on time", colour: "met", fill: "met", own: own(1), ...over },
      ],
    });
  }

  makeBar() {
    const [name, value, length] = [el("span", { class: "name" }), el("span", { class: "value" }), el("i", { class: "length" })];
    return { node: el("li", {}, name, el("span", { class: "track" }, length), value), name, value, length };
  }

  bars(list, entries, label) {
    const most = Math.max(1, ...entries.map(([, n]) => n));
    list.update(entries, ([name]) => name, (bar, [name, n]) => {
      put(bar.name, name);
      put(bar.value, label(name, n));
      fill(bar.length, n / most);
    });
  }

  show(reduce, now) {
    const shed = Object.values(reduce.shed ?? {}).reduce((a, b) => a + b, 0);
    const all = (reduce.on_time ?? 0) + (reduce.late ?? 0) + shed;
    const of = (n) => `${count(n)} (${percent(all ? n / all : 0)})`;
    put(this.title, reduce.query);
    this.facts.show([
      ["objective", round(reduce.objective)],
      ["rows", count(reduce.rows ?? 0)],
      ["on time", of(reduce.on_time ?? 0)],
      ["late", of(reduce.late ?? 0), reduce.late ? "risk" : ""],
      ["shed", of(shed), shed ? "missed" : ""],
      ["put off", count(reduce.waiting ?? 0)],
      ["hot keys", count(reduce.hot ?? 0)],
      ["cold keys", count(reduce.cold ?? 0)],
    ]);
    const reasons = Object.entries(reduce.shed ?? {}).sort((a, b) => b[1] - a[1]);
    hide(this.nothing, reasons.length > 0);
    this.bars(this.reasonList, reasons, (_, n) => count(n));
    this.bars(this.keyList, [["hot", reduce.hot ?? 0], ["cold", reduce.cold ?? 0]],
      (name, n) => (name === "hot" ? `${count(n)}, ${bytes(reduce.hot_bytes ?? 0)}` : count(n)));
    const history = (this.history = reduce.history ?? []);
    if (!history.length) return;
    this.chart.draw(now - 120, now, [
      history.map(([at]) => at),
      history.map(([, on, late, gone]) => on + late + gone),
      history.map(([, on, late]) => on + late),
      history.map(([, on]) => on),
    ], `last batch ${count(history.at(-1)[1])} on time, ${count(history.at(-1)[2])} late, ${count(history.at(-1)[3])} shed`);
  }

  gone() {
    this.chart.gone();
  }
}

export class Reduces {
  constructor(section) {
    this.empty = el("p", { class: "empty" },
      "No reduce runs. A query made with ", el("code", {}, "taut.map_reduce(...)"),
      " shows here what it finished on time, and what it shed and why.");
    this.list = el("div");
    section.append(this.empty, this.list);
    this.blocks = new Keyed(this.list, () => new Block());
  }

  update(snapshot) {
    const reduces = snapshot.reduces ?? [];
    hide(this.empty, reduces.length > 0);
    this.blocks.update(reduces, (reduce) => reduce.query, (block, reduce) => block.show(reduce, snapshot.at));
  }

  reset() {
    this.blocks.clear();
  }
}
