// Nodes are made once and changed in place. What the runtime tells is only ever set as text.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#${name}`);
  svg.append(use);
  return svg;
}

export function put(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

export function mark(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

export function hide(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

// A bar's length, from 0 to 1.
export function fill(node, share) {
  const length = Math.max(0, Math.min(1, Number.isFinite(share) ? share : 0)).toFixed(3);
  if (node.dataset.length !== length) {
    node.dataset.length = length;
    node.style.transform = `scaleX(${length})`;
  }
}

// Children of a node by key, in the order of the items: made, kept and removed as these come and go.
export class Keyed {
  constructor(parent, make) {
    this.parent = parent;
    this.make = make;
    this.made = new Map();
  }

  update(items, key, show) {
    const left = new Set(this.made.keys());
    let next = this.parent.firstElementChild;
    for (const item of items) {
      const k = key(item);
      let entry = this.made.get(k);
      if (!entry) {
        entry = this.make(item);
        this.made.set(k, entry);
      }
      left.delete(k);
      if (entry.node === next) next = next.nextElementSibling;
      else this.place(entry.node, next);
      show(entry, item);
    }
    for (const k of left) {
      const entry = this.made.get(k);
      entry.gone?.();
      entry.node.remove();
      this.made.delete(k);
    }
  }

  // A row that moves must not lose the focus.
  place(node, before) {
    if (node.isConnected && this.parent.moveBefore) {
      this.parent.moveBefore(node, before);
      return;
    }
    const focused = node.contains(document.activeElement) ? document.activeElement : null;
    this.parent.insertBefore(node, before);
    focused?.focus({ preventScroll: true });
  }

  clear() {
    this.update([], () => "", () => {});
  }
}

// Numbers with their names, as a definition list.
export class Facts {
  constructor(parent, label) {
    this.node = el("dl", { class: "facts", "aria-label": label });
    this.shown = new Map();
    parent.append(this.node);
  }

  show(facts) {
    for (const [name, value, tone] of facts) {
      let dd = this.shown.get(name);
      if (!dd) {
        dd = el("dd");
        this.node.append(el("div", {}, el("dt", {}, name), dd));
        this.shown.set(name, dd);
      }
      put(dd, value);
      mark(dd, "class", tone ?? "");
    }
  }
}

// Which of the nodes it was told of can be seen now: nothing else needs to be drawn.
export class Sight {
  constructor(appeared) {
    this.seen = new Set();
    this.watching = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) {
          this.seen.add(target);
          appeared(target);
        } else this.seen.delete(target);
      }
    }, { rootMargin: "60px" });
  }

  add(node) {
    this.watching.observe(node);
  }

  drop(node) {
    this.watching.unobserve(node);
    this.seen.delete(node);
  }

  has(node) {
    return this.seen.has(node);
  }
}
