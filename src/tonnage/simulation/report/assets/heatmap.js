// The fleet over time: one row a GPU. The canvas is as tall as the frame and draws the rows in view, so that a fleet
// of any size costs the same.

const NODE_GAP = 8;
const TOP = 4;
const AXIS = 24;

function heatLayout(rows) {
  const inParts = rows.length <= 24 && rows.some((row) => row.parts?.length);
  const height = inParts ? 28 : rows.length <= 48 ? 14 : rows.length <= 160 ? 9 : 5;
  const tops = [];
  const nodes = [];
  let y = TOP;
  rows.forEach((row, i) => {
    if (i === 0 || rows[i - 1].node !== row.node) {
      if (i) y += NODE_GAP;
      nodes.push({ name: row.node, top: y });
    }
    tops.push(y);
    y += height + 1;
    nodes[nodes.length - 1].bottom = y;
  });
  return { height, tops, nodes, total: y + AXIS };
}

/** The share of the owner's colour for a busy percentage: idle stays visible as held. */
const intensity = (busy) => 0.24 + 0.76 * (Math.round(busy / 5) / 20);

const heatOwner = (run, index) => (index < 0 ? "no node" : index === 0 ? "free" : run.heatmap.owners[index]);

function cellColor(owner, busy) {
  return owner === 0 ? theme.color("--free") : theme.mix(ownerColor(owner - 1), intensity(busy));
}

/** [owner, per cent] of those who hold parts of a row's GPU in column `i`; empty where it is held as a whole or not at all. */
const partsOf = (run, row, i) => run.heatmap.parts?.[row.parts?.[i] ?? 0] ?? [];

/** What is drawn of a cell: [colour, top, bottom], the edges as parts of its height. Parts are as strong as all that is held is busy. */
function bands(run, row, i) {
  if (row.owner[i] < 0) return [];
  const parts = partsOf(run, row, i);
  if (!parts.length) return [[cellColor(row.owner[i], row.busy[i]), 0, 1]];
  const held = parts.reduce((sum, [, part]) => sum + part, 0);
  const busy = Math.min(100, (100 * row.busy[i]) / held);
  let end = 0;
  const drawn = parts.map(([owner, part]) => [cellColor(owner, busy), end, (end = Math.min(1, end + part / 100))]);
  return end < 0.995 ? [...drawn, [cellColor(0, 0), end, 1]] : drawn;
}

function heatLegend(run) {
  const ramps = run.heatmap.owners.slice(1).map((name, i) => {
    const color = `var(${ownerColor(i)})`;
    const ramp = `linear-gradient(90deg, color-mix(in srgb, ${color} 24%, var(--surface)), ${color})`;
    return el("li", {}, el("span.ramp", { style: { background: ramp }, "aria-hidden": "true" }), name, el("span.muted", {}, "idle to busy"));
  });
  return el("ul.legend", {}, ramps, el("li", {}, swatch("--free"), "free, paid for"), el("li.muted", {}, "blank: no node"));
}

/** The map of a run, or a note where it had no GPU. */
function heatMap(run) {
  if (run.heatmap.rows.length) return new HeatMap(byId("heatmap"), run);
  byId("heatmap").replaceChildren(el("p.empty", {}, "No node with a GPU appeared."));
  return { draw() {}, destroy() {} };
}

class HeatMap {
  constructor(parent, run) {
    this.run = run;
    this.rows = run.heatmap.rows;
    this.times = run.heatmap.t_s;
    this.layout = heatLayout(this.rows);
    this.cell = null;
    this.types = new Map(run.nodes.map((node) => [node.name, node.instance_type]));
    this.canvas = el("canvas", { tabindex: "0", role: "group", "aria-roledescription": "heat map", "aria-label": this.summary() });
    this.frame = el("div.frame", {}, this.canvas, el("div.space"));
    this.tip = el("div.tip", { hidden: true });
    parent.replaceChildren(heatLegend(run), this.frame, this.tip);
    this.canvas.addEventListener("mousemove", (event) => this.point(this.at(event.offsetX, event.offsetY), event));
    this.canvas.addEventListener("mouseleave", () => this.point(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.point(null));
    this.frame.addEventListener("scroll", () => this.draw());
    this.sized = new ResizeObserver(() => this.resize());
    this.sized.observe(parent);
    this.resize();
  }

  summary() {
    return `Fleet over time: ${plural(this.layout.nodes.length, "node")}, ${plural(this.rows.length, "GPU")}. Arrow keys read the cells.`;
  }

  resize() {
    const width = this.frame.clientWidth;
    if (width <= 0) return;
    this.gutter = width < 600 ? 76 : Math.min(240, 24 + 7 * Math.max(...this.layout.nodes.map((node) => node.name.length)));
    this.width = width;
    this.shown = Math.min(this.layout.total, 0.7 * window.innerHeight);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${this.shown}px`;
    this.canvas.width = Math.round(width * devicePixelRatio);
    this.canvas.height = Math.round(this.shown * devicePixelRatio);
    this.frame.lastChild.style.height = `${this.layout.total - this.shown}px`;
    this.draw();
  }

  x(t) { return this.gutter + ((t - view.min) / (view.max - view.min)) * (this.width - this.gutter - 8); }

  /** Left and right pixel of column `i`; a column ends at its time. */
  span(i) {
    const start = i ? this.times[i - 1] : 0;
    return [Math.round(this.x(start)), Math.round(this.x(this.times[i]))];
  }

  draw() {
    const ctx = this.canvas.getContext("2d");
    ctx.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    ctx.clearRect(0, 0, this.width, this.shown);
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, 0, this.width, this.shown - AXIS);
    ctx.clip();
    ctx.translate(0, -this.frame.scrollTop);
    this.drawSurges(ctx);
    this.drawCells(ctx);
    this.drawLabels(ctx);
    this.drawCursor(ctx);
    ctx.restore();
    this.drawAxis(ctx);
  }

  drawSurges(ctx) {
    const bottom = this.layout.total - AXIS;
    const fill = (from, to, color) => {
      const [x0, x1] = [Math.max(this.gutter, this.x(from)), Math.min(this.width - 8, this.x(to))];
      ctx.fillStyle = theme.color(color);
      if (x1 > x0) ctx.fillRect(x0, 0, x1 - x0, bottom);
    };
    for (const [start, end] of this.run.services.flatMap((service) => service.surges)) {
      fill(start, end, "--surge");
      fill(start, start + sloOf(this.run).grace_s, "--grace");
    }
  }

  drawCells(ctx) {
    const top = this.frame.scrollTop;
    const { height, tops } = this.layout;
    const columns = this.times.map((_, i) => i).filter((i) => this.times[i] > view.min && (i ? this.times[i - 1] : 0) < view.max);
    const spans = columns.map((i) => this.span(i).map((x) => Math.min(this.width - 8, Math.max(this.gutter, x))));
    this.rows.forEach((row, r) => {
      if (tops[r] + height < top || tops[r] > top + this.shown) return;
      let [from, look, drawn] = [0, "", []]; // of a stretch that looks the same, drawn when it ends
      const close = (x) => {
        for (const [color, top, bottom] of x > from ? drawn : []) {
          ctx.fillStyle = color;
          ctx.fillRect(from, tops[r] + height * top, x - from, height * (bottom - top));
        }
      };
      columns.forEach((i, at) => {
        const [x0, x1] = spans[at];
        if (x1 <= x0) return;
        const next = `${row.owner[i]} ${row.busy[i]} ${row.parts?.[i] ?? 0}`;
        if (next === look) return;
        close(x0);
        [from, look, drawn] = [x0, next, bands(this.run, row, i)];
      });
      close(spans.length ? spans[spans.length - 1][1] : 0);
    });
  }

  drawLabels(ctx) {
    ctx.textBaseline = "middle";
    for (const node of this.layout.nodes) {
      const middle = (node.top + node.bottom - 1) / 2;
      const roomy = node.bottom - node.top > 28;
      ctx.font = `500 12px ${fontFamily()}`;
      ctx.fillStyle = theme.color("--text");
      ctx.fillText(this.fit(ctx, node.name), 0, roomy ? middle - 8 : middle);
      if (!roomy) continue;
      ctx.font = `11px ${fontFamily()}`;
      ctx.fillStyle = theme.color("--muted");
      ctx.fillText(this.fit(ctx, this.types.get(node.name) ?? ""), 0, middle + 8);
    }
  }

  fit(ctx, text) {
    const room = this.gutter - 8;
    if (ctx.measureText(text).width <= room) return text;
    let end = text.length;
    while (end > 1 && ctx.measureText(`…${text.slice(-end)}`).width > room) end--;
    return `…${text.slice(-end)}`;
  }

  drawCursor(ctx) {
    if (!this.cell) return;
    const [x0, x1] = this.span(this.cell.column);
    ctx.strokeStyle = theme.color("--text");
    ctx.lineWidth = 1.5;
    ctx.strokeRect(x0 - 0.5, this.layout.tops[this.cell.row] - 0.5, Math.max(3, x1 - x0) + 1, this.layout.height + 1);
  }

  drawAxis(ctx) {
    const space = view.max - view.min;
    const step = X_STEPS.find((s) => (s / space) * (this.width - this.gutter) >= 64) ?? 86400;
    ctx.font = `11px ${fontFamily()}`;
    ctx.textBaseline = "alphabetic";
    ctx.textAlign = "center";
    ctx.fillStyle = theme.color("--muted");
    for (let t = Math.ceil(view.min / step) * step; t <= view.max; t += step) {
      const x = Math.min(this.width - 22, this.x(t));
      ctx.fillText(fmt.tick(t, step), x, this.shown - 6);
    }
    ctx.textAlign = "left";
  }

  at(px, py) {
    const y = py + this.frame.scrollTop;
    const t = view.min + ((px - this.gutter) / (this.width - this.gutter - 8)) * (view.max - view.min);
    const column = this.times.findIndex((end) => end >= t);
    const row = this.layout.tops.findIndex((top) => y >= top && y <= top + this.layout.height);
    return px < this.gutter || py > this.shown - AXIS || column < 0 || row < 0 ? null : { row, column };
  }

  text({ row, column }) {
    const { node, gpu, owner, busy } = this.rows[row];
    const parts = partsOf(this.run, this.rows[row], column).map(([index, part]) => `${heatOwner(this.run, index)} (${part}% of it)`);
    const who = parts.join(", ") || heatOwner(this.run, owner[column]);
    const held = owner[column] > 0 ? `, ${busy[column]}% busy` : "";
    return { where: `${node}, GPU ${gpu}`, what: `${who}${held}`, when: fmt.clock(this.times[column]) };
  }

  point(cell) {
    this.cell = cell;
    this.tip.hidden = !cell;
    if (cell) {
      const { where, what, when } = this.text(cell);
      this.tip.replaceChildren(el("b", {}, where), el("div", {}, what), el("div.muted", {}, when));
      const [x0, x1] = this.span(cell.column);
      const left = x1 + 18 + this.tip.offsetWidth > this.width ? x0 - this.tip.offsetWidth : x1 + 22;
      this.tip.style.left = `${Math.max(4, left)}px`;
      this.tip.style.top = `${this.frame.offsetTop + this.layout.tops[cell.row] - this.frame.scrollTop + 18}px`;
    }
    this.draw();
  }

  key(event) {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [0, -20], PageDown: [0, 20] };
    const move = moves[event.key];
    if (!move || !this.rows.length) return;
    event.preventDefault();
    const clamp = (v, top) => Math.min(top, Math.max(0, v));
    const { row, column } = this.cell ?? { row: 0, column: 0 };
    this.point({ row: clamp(row + move[0], this.rows.length - 1), column: clamp(column + move[1], this.times.length - 1) });
    const { where, what, when } = this.text(this.cell);
    announce(`${where}: ${what} at ${when}`);
  }

  destroy() { this.sized.disconnect(); }
}
