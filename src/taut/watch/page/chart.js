// uPlot in the page's own colours, made when there is something to draw and a place to draw it on.

import { clock } from "./format.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
let palette = null;
let theme = 0;
dark.addEventListener("change", () => {
  palette = null;
  theme += 1;
});

export function colours() {
  if (!palette) {
    const style = getComputedStyle(document.documentElement);
    palette = new Proxy({}, {
      get(kept, name) {
        return (kept[name] ??= style.getPropertyValue(`--${name}`).trim());
      },
    });
  }
  return palette;
}

const FONT = '11px system-ui, -apple-system, "Segoe UI", sans-serif';
export const SERIES = ["run", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];

export class Chart {
  // series: [{ label, colour, value, ...uPlot's own }], with colours by name
  constructor(parent, { height = 160, y, y2, series, label, top }) {
    this.parent = parent;
    this.height = height;
    this.y = y;
    this.y2 = y2;
    this.series = series;
    this.label = label;
    this.top = top;
    this.plot = null;
    this.width = 0;
    this.wanted = null;
    // To ask for the width between two changes would have the browser lay out the page each time.
    this.sized = new ResizeObserver(([{ contentRect }]) => {
      this.width = Math.floor(contentRect.width);
      if (!this.width) return;
      this.plot?.setSize({ width: this.width, height });
      if (this.wanted) this.draw(...this.wanted);
    });
    this.sized.observe(parent);
  }

  draw(from, to, data, told) {
    this.wanted = [from, to, data, told];
    if (!this.width) return;
    this.range = [from, to];
    if (!this.plot || this.theme !== theme || data.length !== this.plot.series.length) this.make(data);
    else this.plot.setData(data);
    const canvas = this.plot.ctx.canvas;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", told ? `${this.label}: ${told}` : this.label);
  }

  make(data) {
    this.plot?.destroy();
    this.theme = theme;
    const c = colours();
    const axis = (over) => ({
      stroke: c.muted, font: FONT, size: 26, gap: 4,
      grid: { stroke: c.line, width: 1 }, ticks: { show: false }, ...over,
    });
    const axes = [
      axis({ values: (_, at) => at.map(clock), space: 90, gap: 7, grid: { show: false } }),
      axis({ values: (_, at) => at.map(this.y), size: 58, space: 28 }),
    ];
    const scales = {
      x: { time: true, range: () => this.range },
      y: { range: (_, low, high) => [0, Math.max((high ?? 0) * 1.08, this.top?.() ?? 0) || 1] },
    };
    if (this.y2) {
      axes.push(axis({ values: (_, at) => at.map(this.y2), size: 48, side: 1, scale: "y2", grid: { show: false } }));
      scales.y2 = { range: (_, low, high) => [0, (high ?? 0) * 1.08 || 1] };
    }
    const series = this.series().slice(0, data.length - 1);
    const tones = [null, ...series.map(({ colour }) => c[colour])];
    this.plot = new uPlot({
      width: this.width,
      height: this.height,
      axes,
      scales,
      legend: { live: true, markers: { width: 0, fill: (_, n) => tones[n] } },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
      padding: [8, this.y2 ? 0 : 26, 0, 0],
      series: [
        { value: (_, at) => (at == null ? "" : clock(at)), label: "at" },
        ...series.map(({ colour, ...one }) => ({
          stroke: c[colour], width: 1.5, ...one,
          fill: one.fill && (one.fill === true ? `${c[colour]}26` : c[one.fill]),
          points: one.points ? { ...one.points, fill: c[one.points.fill] } : { show: false },
          value: one.own ?? ((_, v) => (v == null ? "" : one.value(v))),
        })),
      ],
    }, data, this.parent);
  }

  // Its series are others now.
  remake() {
    this.theme = null;
  }

  gone() {
    this.sized.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }
}
