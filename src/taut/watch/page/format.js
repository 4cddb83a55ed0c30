// Numbers with their units, as a person reads them. A dash stands for what is not known.

const GAP = "\u00a0";
export const NONE = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const known = (value) => typeof value === "number" && Number.isFinite(value);

export function time(seconds) {
  if (!known(seconds)) return NONE;
  const sign = seconds < 0 ? "−" : "";
  const s = Math.abs(seconds);
  if (s === 0) return `0${GAP}s`;
  if (s < 0.00995) return `${sign}${(s * 1000).toFixed(1)}${GAP}ms`;
  if (s < 0.9995) return `${sign}${Math.round(s * 1000)}${GAP}ms`;
  if (s < 9.995) return `${sign}${s.toFixed(2)}${GAP}s`;
  if (s < 59.95) return `${sign}${s.toFixed(1)}${GAP}s`;
  const all = Math.round(s);
  if (all < 3600) return `${sign}${Math.floor(all / 60)}${GAP}min${GAP}${all % 60}${GAP}s`;
  if (all < 86400) return `${sign}${Math.floor(all / 3600)}${GAP}h${GAP}${Math.floor((all % 3600) / 60)}${GAP}min`;
  return `${sign}${Math.floor(all / 86400)}${GAP}d${GAP}${Math.floor((all % 86400) / 3600)}${GAP}h`;
}

// A bound or a length that somebody chose: 2 s, not 2.00 s.
export const round = (seconds) => time(seconds).replace(/(\.\d*?)0+(?=\D)/, "$1").replace(/\.(?=\D)|(?<=min)\u00a00\u00a0s$/, "");

// For what changes every second and is read at a glance: no more than a digit behind the point.
export function brief(seconds) {
  if (!known(seconds)) return NONE;
  if (Math.abs(seconds) >= 60) return time(seconds);
  return `${seconds < 0 ? "−" : ""}${Math.abs(seconds).toFixed(1)}${GAP}s`;
}

export function count(n) {
  if (!known(n)) return NONE;
  const size = Math.abs(n);
  if (size < 9999.5) return whole.format(n);
  for (const [unit, of] of [["k", 1e3], ["M", 1e6], ["G", 1e9]]) {
    const scaled = n / of;
    if (Math.abs(scaled) < 999.5 || unit === "G") {
      return `${scaled.toFixed(Math.abs(scaled) < 99.95 ? 1 : 0)}${GAP}${unit}`;
    }
  }
  return NONE;
}

// Of a log: its offsets are rows, or bytes, or what else its unit says.
export function amount(n, unit = "rows") {
  if (!known(n)) return NONE;
  if (unit === "bytes") return bytes(n);
  return `${count(n)}${/[kMG]$/.test(count(n)) ? " " : GAP}${unit}`;
}

export const rate = (n, unit) => (known(n) ? `${amount(n, unit)}/s` : NONE);

// Of a time for each: one byte takes none that could be shown.
export const each = (seconds, unit = "rows") =>
  unit === "bytes" ? `${time(seconds * 1e6)} a MB` : `${time(seconds)} a ${unit.replace(/s$/, "")}`;

export function bytes(n) {
  if (!known(n)) return NONE;
  for (const [unit, of] of [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]]) {
    if (n >= of) return `${(n / of).toFixed(1)}${GAP}${unit}`;
  }
  return `${Math.round(n)}${GAP}B`;
}

export function percent(share) {
  if (!known(share)) return NONE;
  const p = share * 100;
  // 99.996 % on time is not 100 %.
  const digits = p > 99 && p < 100 ? 2 : Math.abs(p) < 10 && p !== 0 ? 1 : 0;
  const shown = p > 99 && p < 100 ? Math.floor(p * 100) / 100 : p;
  return `${shown < 0 ? "−" : ""}${Math.abs(shown).toFixed(digits)}${GAP}%`;
}

// Of results on time: 98.8 % is not the 99 % that was promised.
export function exact(share) {
  if (!known(share) || share < 0.9 || share === 1) return percent(share);
  return `${(Math.floor(share * 10000) / 100).toFixed(2)}${GAP}%`;
}

export function clock(at) {
  const d = new Date(at * 1000);
  return [d.getHours(), d.getMinutes(), d.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many}`;
