// The page: one stream of snapshots, four views of it, and the answer above all of them.

import { el, hide, icon, mark, put } from "./dom.js";
import { brief, clock, count, percent, plural, round, time } from "./format.js";
import { Live } from "./live.js";
import { Plans } from "./plan.js";
import { Queries } from "./queries.js";
import { Reduces } from "./reduce.js";
import { Sources } from "./source.js";
import { kindOf, standing, worstFirst } from "./verdict.js";

const $ = (id) => document.getElementById(id);
const views = {
  queries: new Queries($("view-queries")),
  source: new Sources($("view-source")),
  reduce: new Reduces($("view-reduce")),
  plan: new Plans($("view-plan")),
};
const tabs = [...document.querySelectorAll("nav a")];
// What a person at the console, or a test, may want to know.
const stats = (globalThis.taut = { updates: 0, took: 0, bytes: 0, run: null, state: "connecting" });
let snapshot = null;
let view = "queries";
let chosen = null;

// The token has become a cookie: it has no business in the address bar.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);

const tiles = [["missed", "missed", "missed"], ["at risk", "risk", "risk"], ["met", "met", "met"], ["other", "none", "none"]]
  .map(([text, shape, tone]) => {
    const number = el("b", {}, "–");
    const name = el("span", {}, text);
    $("tiles").append(el("li", { class: tone }, icon(shape), number, name));
    return { number, name };
  });

function route(event) {
  let parts = [];
  try {
    parts = decodeURIComponent(location.hash.slice(1)).split("/");
  } catch {
    parts = [];
  }
  const before = view;
  view = Object.hasOwn(views, parts[0]) ? parts[0] : "queries";
  chosen = view === "queries" && parts.length > 1 ? parts.slice(1).join("/") : null;
  for (const tab of tabs) {
    const here = tab.dataset.view === view;
    if (here) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  for (const name of Object.keys(views)) hide($(`view-${name}`), name !== view);
  draw();
  if (event && chosen !== null && before === view) reveal();
}

// A choice far down the list must be seen to have done something.
function reveal() {
  const title = $("chosen");
  const { top, bottom } = title.getBoundingClientRect();
  title.focus({ preventScroll: true });
  if (top < 0 || bottom > innerHeight) title.scrollIntoView({ block: "start" });
}

function draw() {
  if (snapshot && !document.hidden) views[view].update(snapshot, chosen);
}

function answer() {
  const queries = snapshot.queries ?? [];
  const by = { failed: [], missed: [], "at risk": [], met: [], other: [] };
  for (const query of worstFirst(snapshot)) (by[kindOf(query)] ?? by.other).push(query);
  const bad = by.failed.length + by.missed.length;
  const judged = bad + by["at risk"].length + by.met.length;
  const said = [];
  if (by.failed.length) said.push(plural(by.failed.length, "query has failed", "queries have failed"));
  if (by.missed.length) said.push(`${count(by.missed.length)} of ${count(judged)} ${by.missed.length === 1 ? "misses its" : "miss their"} objective`);
  if (!bad && by["at risk"].length) said.push(`${count(by["at risk"].length)} of ${count(judged)} may miss ${by["at risk"].length === 1 ? "its" : "their"} objective`);
  if (!said.length && judged) said.push(judged === 1 ? "The query meets its objective" : `All ${count(judged)} queries meet their objectives`);
  if (!said.length) said.push(queries.length ? "Nothing to judge yet" : "No queries yet");
  const waiting = by.other.filter((query) => kindOf(query) === "no data").length;
  if (judged && waiting) said.push(`${count(waiting)} not judged yet`);
  put($("answer"), said.join(", "));
  const names = (list, tell) => list.slice(0, 3).map((q) => `${q.name} (${tell(q)})`).concat(list.length > 3 ? [`${list.length - 3} more`] : []).join(", ");
  // of a reduce only counts are known
  const late = (q) => {
    const { seconds, still } = standing(q, snapshot);
    if (seconds == null && q.late) return `${count(q.late)} of ${count(q.results)} late`;
    return `${time(seconds)}${still ? " so far" : ""} against ${round(q.objective)}`;
  };
  const near = (q) => (q.slack && q.slack.value < q.slack.cost ? `slack ${brief(q.slack.value)}` : late(q));
  put($("which"), [
    by.failed.length ? `Failed: ${by.failed.slice(0, 3).map((q) => q.name).join(", ")}` : "",
    by.missed.length ? `Missed: ${names(by.missed, late)}` : "",
    by["at risk"].length ? `At risk: ${names(by["at risk"], near)}` : "",
  ].filter(Boolean).join(" · "));
  [bad, by["at risk"].length, by.met.length, by.other.length].forEach((n, i) => {
    put(tiles[i].number, count(n));
    tiles[i].number.parentNode.classList.toggle("zero", n === 0);
  });
  put(tiles[0].name, by.failed.length ? "missed, failed" : "missed");
  document.title = `${bad ? `${bad} missed · ` : by["at risk"].length ? `${by["at risk"].length} at risk · ` : ""}taut`;
}

function head() {
  const running = count(snapshot.running ?? 0);
  const limit = snapshot.concurrency; // 0: queries take no turns
  const turns = limit ? `${running} of ${plural(limit, "turn", "turns")} taken` : `${running} running, no limit`;
  put($("run"), `${snapshot.policy} · ${turns} · up ${time(snapshot.at - snapshot.started)}`);
  const counts = { queries: snapshot.queries, source: snapshot.sources, reduce: snapshot.reduces, plan: snapshot.plans };
  for (const tab of tabs) put(tab.querySelector(".count"), ` ${counts[tab.dataset.view]?.length ?? 0}`);
  const notes = snapshot.notes ?? [];
  if (notes.join("\n") !== $("notes").dataset.said) {
    $("notes").dataset.said = notes.join("\n");
    $("notes").replaceChildren(...notes.map((note) => el("li", {}, note)));
  }
  put($("cost"), `run ${snapshot.run} · Taut takes ${percent(snapshot.overhead ?? 0)} of a core, this page ${stats.took.toFixed(0)} ms and ${count(stats.bytes / 1000)} KB a second`);
}

new Live({
  snapshot(text) {
    const began = performance.now();
    snapshot = JSON.parse(text);
    if (stats.run !== null && stats.run !== snapshot.run) {
      for (const one of Object.values(views)) one.reset();
      put($("said"), "The runtime was started anew; what is shown begins with its start.");
    }
    stats.run = snapshot.run;
    answer();
    head();
    draw();
    stats.bytes = text.length;
    stats.updates += 1;
    stats.took = performance.now() - began;
  },
  state({ name, age, why, retry }) {
    const again = retry === null ? "" : `, next try in ${Math.ceil(retry)} s`;
    const old = age === null ? "nothing heard yet" : `data is ${Math.floor(age)} s old`;
    const reason = { refused: "the token no longer holds: open page.url again", failed: "the runtime cannot tell how it stands", lost: `connection lost${again}`, late: "no news" }[why];
    put($("live-text"), name === "live" ? `live ${clock(snapshot.at)}` : name === "connecting" ? "connecting" : `stale: ${old}, ${reason}`);
    if (stats.state === name) return;
    put($("said"), name === "live" ? "Live again." : name === "stale" ? "Stale: what is shown is no longer up to date." : "");
    stats.state = name;
    mark(document.body, "class", name);
  },
});

$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
});
document.addEventListener("visibilitychange", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTimeout(draw));
window.addEventListener("hashchange", route);
route();
