// A long list of which only the rows in view exist. Rows have one height; an open row adds that of its detail.

const OVERSCAN = 8;
const narrow = matchMedia("(max-width: 760px)");

class WindowedList {
  /** `line(item)` gives the cells of a row, `detail(item)` the opened part or null; `cls` is the class of the grid. */
  constructor(parent, { label, cls, line, detail }) {
    Object.assign(this, { line, detail, cls, items: [], open: new Map(), active: -1, id: parent.id });
    this.space = el("div", { role: "presentation" });
    this.frame = el("div.list", { tabindex: "0", role: "treegrid", "aria-label": label, "aria-readonly": "true" }, this.space);
    this.frame.addEventListener("scroll", () => this.draw());
    this.frame.addEventListener("keydown", (event) => this.key(event));
    this.sized = new ResizeObserver(() => this.draw());
    this.sized.observe(this.frame);
    parent.append(this.frame);
  }

  get rowHeight() { return narrow.matches ? 52 : 34; }

  show(items) {
    this.items = items;
    this.open.clear();
    this.active = -1;
    this.frame.scrollTop = 0;
    this.draw();
  }

  /** Pixel offset of row `index`. */
  top(index) {
    let y = index * this.rowHeight;
    for (const [at, extra] of this.open) if (at < index) y += extra;
    return y;
  }

  first(y) {
    let [low, high] = [0, this.items.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.top(middle + 1) <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  draw() {
    const total = this.top(this.items.length);
    this.frame.style.height = `${Math.max(this.rowHeight, total)}px`;
    this.frame.setAttribute("aria-rowcount", this.items.length);
    this.space.style.cssText = `position: relative; height: ${total}px`;
    const from = Math.max(0, this.first(this.frame.scrollTop) - OVERSCAN);
    const until = this.frame.scrollTop + (this.frame.clientHeight || 560);
    const rows = [];
    for (let i = from; i < this.items.length && (this.top(i) < until || rows.length < OVERSCAN); i++) rows.push(this.row(i));
    this.space.replaceChildren(...rows);
    if (this.active >= 0) this.frame.setAttribute("aria-activedescendant", `${this.id}-${this.active}`);
    else this.frame.removeAttribute("aria-activedescendant");
    this.measure();
  }

  row(index) {
    const item = this.items[index];
    const open = this.open.has(index);
    const cells = this.line(item);
    cells.forEach((cell) => cell.setAttribute("role", "gridcell"));
    const line = el(`div.line.${this.cls}`, { style: { height: `${this.rowHeight}px` }, onclick: () => this.toggle(index) }, cells);
    const row = el("div.row", {
      id: `${this.id}-${index}`, role: "row", "aria-level": "1", "aria-rowindex": index + 1, "data-row": index,
      "aria-expanded": this.detail ? String(open) : null, style: { top: `${this.top(index)}px` },
    }, line);
    row.classList.toggle("active", index === this.active);
    if (open) row.append(el("div.detail", { role: "gridcell" }, this.detail(item)));
    return row;
  }

  /** The height of an open row is known once it stands in the page. */
  measure() {
    let changed = false;
    for (const row of this.space.children) {
      const index = Number(row.dataset.row);
      if (!this.open.has(index)) continue;
      const extra = row.lastChild.offsetHeight;
      if (extra !== this.open.get(index)) {
        this.open.set(index, extra);
        changed = true;
      }
    }
    if (changed) this.draw();
  }

  toggle(index) {
    this.active = index;
    if (this.detail) {
      if (this.open.has(index)) this.open.delete(index);
      else this.open.set(index, 0);
    }
    this.draw();
    this.reveal();
  }

  /** Scrolls the active row into view, its beginning rather than its end. */
  reveal() {
    const { scrollTop, clientHeight } = this.frame;
    const [top, bottom] = [this.top(this.active), this.top(this.active + 1)];
    if (top < scrollTop) this.frame.scrollTop = top;
    else if (bottom > scrollTop + clientHeight) this.frame.scrollTop = Math.min(top, bottom - clientHeight);
    else return;
    this.draw();
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.frame.clientHeight / this.rowHeight) - 1);
    const last = this.items.length - 1;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves && last >= 0) {
      this.active = Math.min(last, Math.max(0, this.active + moves[event.key]));
      this.draw();
      this.reveal();
    } else if ((event.key === "Enter" || event.key === " ") && this.active >= 0) {
      this.toggle(this.active);
    } else if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && this.active >= 0) {
      if (this.open.has(this.active) !== (event.key === "ArrowRight")) this.toggle(this.active);
    } else {
      return;
    }
    event.preventDefault();
  }

  destroy() { this.sized.disconnect(); }
}
