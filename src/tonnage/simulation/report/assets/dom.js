// Elements, and numbers as people read them. All text goes in as text nodes, so data can never become markup.

const byId = (id) => document.getElementById(id);

/** An element: el("td.num", {title: "x"}, "text", child). Attributes that are null, undefined or false are left out. */
function el(spec, attrs = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(attrs)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const swatch = (color) => el("span.swatch", { style: { "--swatch": `var(${color})` }, "aria-hidden": "true" });

const fontFamily = () => getComputedStyle(document.body).fontFamily;

const NO_DATA = "–";
const group = (value, digits = 0) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const significant = (value) => String(Number(value.toPrecision(3)));

const fmt = {
  count: (v) => (v === null ? NO_DATA : group(Math.round(v))),
  number(v) {
    if (v === null) return NO_DATA;
    if (Number.isInteger(v)) return group(v);
    return Math.abs(v) >= 1000 ? group(v) : significant(v);
  },
  compact(v) {
    if (v >= 1e6) return `${significant(v / 1e6)}M`;
    return v >= 1e4 ? `${significant(v / 1e3)}k` : fmt.number(v);
  },
  percent(share) {
    if (share === null) return NO_DATA;
    const v = 100 * share;
    if (share < 1 && v > 99.99) return ">99.99%";
    if (v > 99) return share < 1 ? `${v.toFixed(2)}%` : "100%";
    return v ? `${v.toFixed(1)}%` : "0%";
  },
  usd(micro) {
    if (micro === null) return NO_DATA;
    const v = Math.abs(micro) / 1e6;
    const sign = micro < 0 ? "-" : "";
    if (v > 0 && v < 0.1) return `${sign}$${v.toFixed(4)}`;
    return `${sign}$${group(v, v < 10000 ? 2 : 0)}`;
  },
  seconds(v) {
    if (v === null) return NO_DATA;
    if (v < 59.95) return `${significant(v)} s`;
    const two = (big, bigUnit, small, smallUnit) =>
      small ? `${big} ${bigUnit} ${small} ${smallUnit}` : `${big} ${bigUnit}`;
    const whole = Math.round(v);
    if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
    return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  },
  ms(v) {
    if (v === null) return NO_DATA;
    if (v < 999.5) return v < 99.95 ? `${significant(v)} ms` : `${v.toFixed(0)} ms`;
    return fmt.seconds(v / 1000);
  },
  /** Milliseconds on an axis: short, and never in two units. */
  msTick: (v) => (v < 1000 ? `${fmt.number(v)} ms` : `${fmt.compact(v / 1000)} s`),
  hours: (v) => (v === null ? NO_DATA : group(v, v < 100 ? 2 : 0)),
  clock(t) {
    const whole = Math.floor(t);
    const pad = (v) => String(v).padStart(2, "0");
    return `${Math.floor(whole / 3600)}:${pad(Math.floor((whole % 3600) / 60))}:${pad(whole % 60)}`;
  },
  /** Labels of a time axis whose ticks are `step` seconds apart. */
  tick(t, step) {
    if (step < 60) return fmt.clock(t);
    const minutes = Math.round(t / 60);
    if (minutes === 0) return "0";
    if (minutes < 60) return `${minutes} min`;
    return minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60}` : `${minutes / 60} h`;
  },
  value(v) {
    if (v === null) return "no data";
    return typeof v === "number" ? fmt.number(v) : String(v);
  },
  ref: (ref) => `${ref.kind} ${ref.namespace ? `${ref.namespace}/` : ""}${ref.name}`,
};

const plural = (n, one, many = `${one}s`) => `${fmt.count(n)} ${n === 1 ? one : many}`;
const maximum = (values) => values.reduce((top, v) => (v !== null && v > top ? v : top), -Infinity);
