// What is said of a query: in a word, in a colour and in a shape, never in a colour alone.

import { el, icon, put } from "./dom.js";

export const KINDS = {
  failed: { rank: 0, icon: "failed", tone: "missed", text: "failed" },
  missed: { rank: 1, icon: "missed", tone: "missed", text: "missed" },
  "at risk": { rank: 2, icon: "risk", tone: "risk", text: "at risk" },
  met: { rank: 3, icon: "met", tone: "met", text: "met" },
  "no data": { rank: 4, icon: "none", tone: "none", text: "no data" },
  "no objective": { rank: 5, icon: "none", tone: "none", text: "no objective" },
  ended: { rank: 6, icon: "none", tone: "none", text: "ended" },
};

// A query that has failed may have met its objective until then: that is not what matters now.
export const kindOf = (query) =>
  query.state === "failed" || query.state === "ended" ? query.state : query.verdict in KINDS ? query.verdict : "no data";

const AT_WORK = new Set(["held", "planned", "running"]);

// What has been waited for in vain for longer than the objective: late already, however late it will be.
function soFar(query, { at }) {
  if (query.objective == null || query.awaited == null || !AT_WORK.has(query.state)) return null;
  return at - query.awaited > query.objective ? at - query.awaited : null;
}

// The objective's measure, or what is late by more than that and still to come.
export function standing(query, snapshot) {
  const waited = soFar(query, snapshot);
  const still = waited != null && !(query.observed >= waited);
  return { seconds: still ? waited : query.observed, still };
}

export function ratio(query, snapshot) {
  const { seconds } = standing(query, snapshot);
  return query.objective && seconds != null ? seconds / query.objective : 0;
}

// Rows that change places every second cannot be read: only those in trouble go by how bad it is.
export function worstFirst(snapshot) {
  return [...(snapshot.queries ?? [])].sort((a, b) => {
    const [ka, kb] = [KINDS[kindOf(a)].rank, KINDS[kindOf(b)].rank];
    if (ka !== kb) return ka - kb;
    if (ka <= 2) {
      const [ra, rb] = [a, b].map((one) => Math.round(ratio(one, snapshot) * 10));
      if (ra !== rb) return rb - ra;
    }
    return a.name < b.name ? -1 : 1;
  });
}

export class Badge {
  constructor() {
    this.node = el("span", { class: "badge" });
    this.text = el("span");
    this.kind = null;
  }

  show(kind) {
    if (this.kind === kind) return;
    this.kind = kind;
    const { icon: shape, tone, text } = KINDS[kind];
    this.node.className = `badge ${tone}`;
    put(this.text, text);
    this.node.replaceChildren(icon(shape), this.text);
  }
}
