// A query's turns, drawn as a strip: held, planning, running, and which of them were late.

import { colours } from "./chart.js";

const HEIGHT = 22;

export function size(canvas, width) {
  const scale = window.devicePixelRatio || 1;
  const w = Math.round(width * scale);
  const h = Math.round(HEIGHT * scale);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
}

export function strip(canvas, query, now, span) {
  const pen = canvas.getContext("2d");
  const scale = canvas.height / HEIGHT;
  const width = canvas.width / scale;
  const c = colours();
  const from = now - span;
  const x = (at) => ((at - from) / span) * width;
  const block = (a, b, top, height, colour, least) => {
    const left = Math.max(0, x(a));
    const right = Math.min(width, Math.max(x(b), x(a) + least));
    if (right <= 0 || left >= width) return;
    pen.fillStyle = colour;
    pen.fillRect(left, top, right - left, height);
  };
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, HEIGHT);
  pen.fillStyle = c.line;
  const step = span > 60 ? 30 : 10;
  for (let at = Math.ceil(from / step) * step; at < now; at += step) pen.fillRect(x(at), 0, 1, HEIGHT);
  for (const [held, begun, run, written, , , late] of query.bars ?? []) {
    if (written < from) continue;
    block(held, begun, 12, 2, c.held, 0);
    block(begun, run, 8, 10, c.planning, 1);
    block(run, written, 5, 16, late ? c.missed : c.run, 2);
    if (late) {
      const tip = Math.min(width - 4, x(written));
      pen.beginPath();
      pen.moveTo(tip - 4, 0);
      pen.lineTo(tip + 4, 0);
      pen.lineTo(tip, 5);
      pen.fillStyle = c.missed;
      pen.fill();
    }
  }
  // One that takes no turns runs since its start: what its batches were is drawn already.
  const since = Math.max(query.since, query.bars?.at(-1)?.[3] ?? 0);
  if (query.state === "running") block(since, now, 5, 16, c.run, 2);
  else if (query.state !== "ended" && query.state !== "failed") block(since, now, 12, 2, c.held, 0);
  else {
    pen.fillStyle = query.state === "failed" ? c.missed : c.muted;
    pen.fillRect(width - 2, 3, 2, HEIGHT - 6);
  }
}
