// One chart panel: title, legend with the values under the cursor, and a uPlot. All charts share cursor and zoom.

const SYNC = "tonnage";
const X_STEPS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400];
let charts = [];

function destroyCharts(keep = []) {
  charts.filter((chart) => !keep.includes(chart)).forEach((chart) => chart.destroy());
  charts = keep;
}

/** 1, 2, 5, 10, 20 … around [min, max]. */
function decades(min, max) {
  const marks = [];
  for (let power = Math.floor(Math.log10(min)) - 1; power <= Math.ceil(Math.log10(max)); power++) {
    for (const lead of [1, 2, 5]) marks.push(Number((lead * 10 ** power).toPrecision(6)));
  }
  return marks;
}

function logRange(min, max) {
  const marks = decades(min, max);
  return [marks.filter((v) => v <= min).pop(), marks.find((v) => v >= max)];
}

function niceTop(max) {
  if (!(max > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(max));
  return [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((v) => v * unit).find((v) => v >= max * 1.001);
}

/** Surges and grace windows behind the data, named above the plot. */
function backdrop(u, options) {
  const { ctx, bbox } = u;
  const fill = (from, to, color) => {
    const x0 = Math.max(bbox.left, u.valToPos(from, "x", true));
    const x1 = Math.min(bbox.left + bbox.width, u.valToPos(to, "x", true));
    if (x1 <= x0) return null;
    ctx.fillStyle = theme.color(color);
    ctx.fillRect(x0, bbox.top, x1 - x0, bbox.height);
    return [x0, x1];
  };
  ctx.save();
  ctx.font = `500 ${10.5 * uPlot.pxRatio}px ${fontFamily()}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  for (const [start, end, factor] of options.surges || []) {
    const surge = fill(start, end, "--surge");
    fill(start, Math.min(start + options.grace, view.full[1]), "--grace");
    const label = `surge × ${significant(factor)}`;
    if (surge && surge[0] + ctx.measureText(label).width < bbox.left + bbox.width) {
      ctx.fillStyle = theme.color("--muted");
      ctx.fillText(label, surge[0], bbox.top - 3 * uPlot.pxRatio);
    }
  }
  ctx.restore();
}

/** The limit as a dashed line with its name, where that meets no curve. */
function limitLine(u, limit) {
  if (!limit) return;
  const { ctx, bbox } = u;
  const y = Math.round(u.valToPos(limit.value, "y", true));
  if (y < bbox.top || y > bbox.top + bbox.height) return;
  ctx.save();
  ctx.strokeStyle = theme.color("--red");
  ctx.lineWidth = 1.25 * uPlot.pxRatio;
  ctx.setLineDash([5 * uPlot.pxRatio, 4 * uPlot.pxRatio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.font = `560 ${10.5 * uPlot.pxRatio}px ${fontFamily()}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  const [width, height] = [ctx.measureText(limit.label).width + 6 * uPlot.pxRatio, 14 * uPlot.pxRatio];
  const name = clearPlace(curves(u), bbox, y, width, height, 2 * uPlot.pxRatio);
  if (name.met) { // at least what is behind it does not show through
    ctx.fillStyle = theme.color("--surface");
    ctx.fillRect(name.left, name.top, width, height);
  }
  ctx.fillStyle = theme.color("--red");
  ctx.fillText(limit.label, name.left + 3 * uPlot.pxRatio, name.top + height / 2);
  ctx.restore();
  u.root.dataset.limitMet = name.met;
}

/** The points of each curve in pixels of the canvas; null where a curve is interrupted. */
function curves(u) {
  const [xs, ...columns] = u.data;
  return columns.map((values) => values.map((value, i) =>
    (value === null || value === undefined ? null : [u.valToPos(xs[i], "x", true), u.valToPos(value, "y", true)])));
}

/** Where a name of this size stands beside a line at `y`, within the box, so that the fewest curves are met: the first
 * of such places from the right, above the line before below. */
function clearPlace(lines, box, y, width, height, gap) {
  const tops = [y - gap - height, y + gap].filter((top) => top >= box.top && top + height <= box.top + box.height);
  const most = Math.max(box.left, box.left + box.width - width - 2 * gap);
  let best = null;
  for (let step = 0; step <= 24; step++) {
    const left = most - ((most - box.left) * step) / 24;
    for (const top of tops.length ? tops : [Math.max(box.top, y - gap - height)]) {
      const met = lines.filter((line) => meets(line, left, top, left + width, top + height)).length;
      if (best === null || met < best.met) best = { left, top, met };
      if (!met) return best;
    }
  }
  return best;
}

/** Whether a curve goes through a rectangle. */
function meets(line, x0, y0, x1, y1) {
  return line.some((to, i) => {
    if (to === null) return false;
    const from = line[i - 1] ?? to;
    if (to[0] < x0 || from[0] > x1) return false;
    const at = (x) => (to[0] === from[0] ? to[1] : from[1] + ((to[1] - from[1]) * (x - from[0])) / (to[0] - from[0]));
    const ends = to[0] === from[0] ? [from[1], to[1]] : [at(Math.max(x0, from[0])), at(Math.min(x1, to[0]))];
    return Math.max(...ends) >= y0 && Math.min(...ends) <= y1;
  });
}

/** The y range, over all the data, so that zooming in time does not move it. */
function yRange(columns, options) {
  const values = columns.flat().filter((v) => v !== null && v !== undefined && (!options.log || v > 0));
  if (options.limit) values.push(options.limit.value * 1.15);
  const top = maximum(values);
  if (options.log) return logRange(values.length ? values.reduce((a, b) => Math.min(a, b)) : 1, Math.max(top, 1));
  return [0, options.top ?? Math.max(niceTop(top), options.whole ? 4 : 0)];
}

/** Columns as drawn: stacked areas are summed from the bottom up; a log scale has no zero. */
function drawn(options) {
  let below = null;
  return options.series.map((series) => {
    if (series.kind === "stack") {
      below = series.values.map((v, i) => v + (below ? below[i] : 0));
      return below;
    }
    return options.log ? series.values.map((v) => (v > 0 ? v : null)) : series.values;
  });
}

function uplotSeries(series) {
  const shade = () => (series.share ? theme.mix(series.color, series.share) : theme.color(series.color));
  const area = series.kind === "stack" || series.kind === "area";
  return {
    label: series.label,
    stroke: area && series.kind === "stack" ? null : shade,
    fill: series.kind === "stack" ? shade : series.kind === "area" ? () => theme.mix(series.color, 0.18) : null,
    width: series.width ?? 1.6,
    dash: series.dash,
    paths: series.kind === "stack" || series.kind === "step" ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear(),
    points: { show: series.kind === "line" && isolated(series.values), size: 3, fill: shade },
  };
}

/** Whether a column has values that stand alone between gaps, which a line would not show. */
function isolated(values) {
  return values.some((v, i) => v !== null && (values[i - 1] ?? null) === null && (values[i + 1] ?? null) === null);
}

function legendItem(series, format) {
  const kind = series.kind === "stack" ? "area" : series.dash ? "dash" : "line";
  const color = series.share ? `color-mix(in srgb, var(${series.color}) ${100 * series.share}%, var(--surface))` : `var(${series.color})`;
  const value = el("span.v");
  const top = maximum(series.values);
  const rest = top === -Infinity ? "no data" : `max ${format(top)}`;
  value.textContent = rest;
  const item = el("li", {}, el(`span.mark.${kind}`, { style: { "--swatch": color }, "aria-hidden": "true" }), series.label, value);
  return { item, show: (index) => { value.textContent = index === null ? rest : format(series.values[index] ?? null); } };
}

function axes(options, format) {
  const text = () => theme.color("--muted");
  const grid = { stroke: () => theme.color("--grid"), width: 1 };
  const font = `11px ${fontFamily()}`;
  return [
    {
      stroke: text, font, grid: { show: false }, ticks: { stroke: () => theme.color("--border-strong"), size: 4, width: 1 },
      size: 26, gap: 4, space: 64, incrs: X_STEPS, values: (u, splits, axis, space, step) => splits.map((v) => fmt.tick(v, step)),
    },
    {
      stroke: text, font, grid, ticks: { show: false }, size: 54, gap: 6, space: 30,
      incrs: options.whole ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] : undefined,
      splits: options.log ? (u, i, min, max) => logSplits(min, max) : undefined,
      filter: (u, splits) => splits,
      values: (u, splits) => splits.map((v) => format(v)),
    },
  ];
}

/** 1-2-5 marks while there are few, else decades. */
function logSplits(min, max) {
  const marks = decades(min, max).filter((v) => v >= min && v <= max);
  return marks.length <= 7 ? marks : marks.filter((v) => Number.isInteger(Math.log10(v)));
}

function stepCursor(u, options, event, describe) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 };
  const last = options.x.length - 1;
  let index = u.cursor.idx ?? 0;
  if (event.key === "Home") index = 0;
  else if (event.key === "End") index = last;
  else if (event.key in steps) index = Math.min(last, Math.max(0, index + steps[event.key]));
  else return;
  event.preventDefault();
  u.setCursor({ left: u.valToPos(options.x[index], "x"), top: 10 });
  announce(describe(index));
}

/**
 * Adds a panel to `parent`. Options: title, unit, x (seconds), series [{label, values, color, kind: line | step |
 * area | stack, dash, width, share}], format, axisFormat, limit {value, label}, log, whole, top, surges, grace, height.
 */
function chart(parent, options) {
  const format = options.format ?? fmt.number;
  const columns = drawn(options);
  const [yMin, yMax] = yRange(columns, options);
  const time = el("span.time");
  const entries = options.series.map((series) => legendItem(series, format));
  const plot = el("div.plot", { tabindex: "0", role: "group", "aria-roledescription": "chart" });
  const describe = (index) =>
    `${fmt.clock(options.x[index])}: ${options.series.map((s) => `${s.label} ${format(s.values[index] ?? null)}`).join(", ")}`;
  plot.setAttribute("aria-label", `${options.title}. ${entries.map(({ item }) => item.textContent).join(", ")}. Arrow keys read the values.`);
  parent.append(el("div.chart.card", {},
    el("div.head", {}, el("h3", {}, options.title), el("span.unit", {}, options.unit ?? ""), time),
    el("ul.legend", {}, entries.map(({ item }) => item)), plot));

  // Stacks are drawn from the tallest down, each over the last.
  const order = options.series.map((_, i) => i);
  const stacked = order.filter((i) => options.series[i].kind === "stack").reverse();
  const drawOrder = [...stacked, ...order.filter((i) => options.series[i].kind !== "stack")];
  const u = new uPlot({
    width: Math.max(120, plot.clientWidth), height: options.height ?? 200, padding: [18, 20, 0, 0], legend: { show: false },
    cursor: {
      y: false, points: { size: 6 }, bind: { dblclick: () => () => { view.reset(); return null; } },
      sync: { key: SYNC, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      drag: { x: true, y: false, setScale: false },
    },
    scales: { x: { time: false, range: () => [view.min, view.max] }, y: { distr: options.log ? 3 : 1, range: () => [yMin, yMax] } },
    axes: axes(options, options.axisFormat ?? format),
    series: [{}, ...drawOrder.map((i) => uplotSeries(options.series[i]))],
    hooks: {
      drawClear: [(self) => backdrop(self, options)],
      draw: [(self) => limitLine(self, options.limit)],
      setSelect: [(self) => {
        const { left, width } = self.select;
        if (width > 4) view.set(self.posToVal(left, "x"), self.posToVal(left + width, "x"));
        self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      }],
      setCursor: [(self) => {
        const index = self.cursor.left >= 0 ? self.cursor.idx ?? null : null;
        time.textContent = index === null ? "" : fmt.clock(options.x[index]);
        entries.forEach((entry) => entry.show(index));
      }],
    },
  }, [options.x, ...drawOrder.map((i) => columns[i])], plot);
  plot.addEventListener("keydown", (event) => stepCursor(u, options, event, describe));
  watch(u, plot);
  return u;
}

function watch(u, plot) {
  charts.push(u);
  const sized = new ResizeObserver(() => {
    if (plot.clientWidth > 0 && plot.clientWidth !== u.width) u.setSize({ width: plot.clientWidth, height: u.height });
  });
  sized.observe(plot);
  u.hooks.destroy = [() => sized.disconnect()];
}

function redrawCharts() { charts.forEach((chart) => chart.redraw(false)); }
function zoomCharts() { charts.forEach((chart) => chart.setScale("x", { min: view.min, max: view.max })); }
