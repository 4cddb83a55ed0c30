// The stream of snapshots: opened again by itself when it breaks, later each time, and honest about
// how old what is shown has become.

const STALE = 3; // seconds without a snapshot after which the page says so
const SILENT = 8; // and after which the connection is taken to be dead
const LONGEST = 10; // seconds between two tries

export class Live {
  constructor({ snapshot, state }) {
    this.snapshot = snapshot;
    this.state = state;
    this.tries = 0;
    this.last = null;
    this.failed = false;
    this.refused = false;
    this.retryAt = null;
    this.timer = null;
    window.addEventListener("online", () => this.soon());
    document.addEventListener("visibilitychange", () => document.hidden || this.soon());
    setInterval(() => this.look(), 500);
    this.open();
  }

  open() {
    clearTimeout(this.timer);
    this.retryAt = null;
    this.opened = performance.now();
    const stream = (this.stream = new EventSource("events"));
    stream.onmessage = (event) => {
      this.tries = 0;
      this.failed = this.refused = false;
      this.last = performance.now();
      this.snapshot(event.data);
      this.look();
    };
    stream.addEventListener("failed", () => {
      this.failed = true;
      this.opened = performance.now();
      this.look();
    });
    stream.onerror = () => this.again();
  }

  again() {
    this.stream.close();
    const wait = Math.min(LONGEST, 0.5 * 2 ** this.tries) * (0.75 + Math.random() / 2);
    this.tries += 1;
    this.retryAt = performance.now() + wait * 1000;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), wait * 1000);
    if (this.tries > 1) this.ask();
    this.look();
  }

  // An EventSource does not tell why it was refused.
  async ask() {
    try {
      this.refused = (await fetch("snapshot.json", { method: "HEAD", cache: "no-store" })).status === 401;
    } catch {
      this.refused = false;
    }
  }

  soon() {
    if (this.retryAt !== null) this.open();
  }

  age() {
    return this.last === null ? null : (performance.now() - this.last) / 1000;
  }

  look() {
    const heard = Math.max(this.last ?? 0, this.opened);
    if (this.retryAt === null && performance.now() - heard > SILENT * 1000) this.again();
    const age = this.age();
    const stale = age === null || age > STALE;
    this.state({
      age,
      name: !stale && !this.failed ? "live" : age === null && this.tries < 2 && !this.failed ? "connecting" : "stale",
      why: this.refused ? "refused" : this.failed ? "failed" : this.retryAt !== null || this.tries ? "lost" : "late",
      retry: this.retryAt === null ? null : Math.max(0, (this.retryAt - performance.now()) / 1000),
    });
  }
}
