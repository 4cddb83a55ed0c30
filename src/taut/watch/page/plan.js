// Plans: what was expected of each planned query, and what then happened.

import { SERIES } from "./chart.js";
import { el, Facts, hide, Keyed, mark, put } from "./dom.js";
import { percent, rate, time } from "./format.js";

const KIND = { inside: "met", above: "missed", below: "risk", none: "none" };

class Block {
  constructor() {
    this.title = el("h2");
    this.verdict = el("p", { class: "why" });
    this.band = el("i", { class: "band" });
    this.middle = el("i", { class: "middle" });
    this.dot = el("i", { class: "dot" });
    this.scale = el("span", { class: "scale" });
    this.range = el("div", { class: "interval", role: "img" }, this.band, this.middle, this.dot);
    this.stack = el("div", { class: "stack", role: "img" });
    this.names = el("ul", { class: "phases" });
    this.parts = new Keyed(this.stack, () => ({ node: el("i") }));
    this.keys = new Keyed(this.names, () => {
      const [name, value] = [el("span"), el("b")];
      return { node: el("li", {}, el("i"), name, value), name, value };
    });
    this.none = el("p", { class: "empty" }, "This plan has no phases: it was made without a profile of the job.");
    this.node = el("article", { class: "block" }, this.title, this.verdict);
    this.facts = new Facts(this.node, "Numbers of this plan");
    this.node.append(
      el("h3", {}, "Expected (band), and seen (dot)"), this.range, this.scale,
      el("h3", {}, "Where the plan expects the time to go"), this.stack, this.names, this.none);
  }

  show(plan) {
    const { expected, low, high, observed, measure } = plan;
    const seen = observed != null;
    const where = !seen ? "none" : observed > high ? "above" : observed < low ? "below" : "inside";
    put(this.title, plan.query);
    put(this.verdict, !seen
      ? `Nothing seen yet; ${measure} is expected between ${time(low)} and ${time(high)}.`
      : `${measure} of ${time(observed)} is ${where} ${where === "inside" ? "what was expected" : where === "above" ? `${time(high)}, the most that was expected` : `${time(low)}, the least that was expected`}.`);
    this.facts.show([
      [`${measure} expected`, time(expected)],
      ["interval", `${time(low)} to ${time(high)}`],
      [`${measure} seen`, time(observed), where === "above" ? "missed" : ""],
      ["seen / expected", seen ? percent(observed / expected) : "–"],
      ["rate planned", rate(plan.planned_rate ?? 0)],
      ["rate seen", rate(plan.rate ?? 0), plan.planned_rate && plan.rate > plan.planned_rate * 1.1 ? "risk" : ""],
    ]);
    const end = Math.max(high, observed ?? 0) * 1.15 || 1;
    const at = (value) => `${(100 * value) / end}%`;
    this.band.style.left = at(low);
    this.band.style.width = at(high - low);
    this.middle.style.left = at(expected);
    this.dot.style.left = at(observed ?? 0);
    hide(this.dot, !seen);
    mark(this.dot, "class", `dot ${KIND[where]}`);
    put(this.scale, `0 to ${time(end)}`);
    mark(this.range, "aria-label", `expected ${time(expected)}, between ${time(low)} and ${time(high)}, seen ${time(observed)}`);
    this.phases(Object.entries(plan.phases ?? {}));
  }

  phases(phases) {
    const total = phases.reduce((sum, [, took]) => sum + took, 0) || 1;
    hide(this.none, phases.length > 0);
    hide(this.stack, phases.length === 0);
    const numbered = phases.map(([name, took], n) => [name, took, `s${n % SERIES.length}`]);
    this.parts.update(numbered, ([name]) => name, ({ node }, [, took, tone]) => {
      mark(node, "class", tone);
      node.style.flexGrow = String(took / total);
    });
    this.keys.update(numbered, ([name]) => name, (key, [name, took, tone]) => {
      mark(key.node, "class", tone);
      put(key.name, name);
      put(key.value, `${time(took)} · ${percent(took / total)}`);
    });
    mark(this.stack, "aria-label", numbered.map(([name, took]) => `${name} ${time(took)}`).join(", "));
  }
}

export class Plans {
  constructor(section) {
    this.empty = el("p", { class: "empty" },
      "No query runs by a plan. One started with a plan of ", el("code", {}, "taut.plan(...)"),
      " shows here what was expected of it against what is seen.");
    this.list = el("div");
    section.append(this.empty, this.list);
    this.blocks = new Keyed(this.list, () => new Block());
  }

  update(snapshot) {
    const plans = snapshot.plans ?? [];
    hide(this.empty, plans.length > 0);
    this.blocks.update(plans, (plan) => `${plan.query}\n${plan.measure}`, (block, plan) => block.show(plan));
  }

  reset() {
    this.blocks.clear();
  }
}
