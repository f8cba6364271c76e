// Cost by owner as stacked bars, and the nodes with their prices and lives.

const COST_PARTS = [
  ["used_micro_usd", "used", 1],
  ["idle_in_allocation_micro_usd", "idle in allocation", 0.38],
  ["idle_micro_usd", "idle, not allocated", 0],
];

const costOf = (line) => COST_PARTS.reduce((sum, [key]) => sum + line[key], 0);

function partColor(color, share) {
  return share ? `color-mix(in srgb, var(${color}) ${100 * share}%, var(--surface))` : "var(--border-strong)";
}

function costRow(line, color, most) {
  const total = costOf(line);
  const parts = COST_PARTS.filter(([key]) => line[key] > 0);
  const bar = el("div.bar", { role: "img", "aria-label": parts.map(([key, name]) => `${name} ${fmt.usd(line[key])}`).join(", ") },
    parts.map(([key, name, share]) => el("span", {
      title: `${name}: ${fmt.usd(line[key])}`, style: { width: `${(100 * line[key]) / most}%`, background: partColor(color, share) },
    })));
  const split = parts.map(([key, name]) => `${fmt.usd(line[key])} ${name}`).join(" · ");
  return el("div.cost-row", {}, el("div.name", { title: line.owner }, line.owner || "Nobody"), bar, el("div.sum", {}, fmt.usd(total)), el("div.split", {}, split || "nothing"));
}

function costs(run) {
  const { lines, total_micro_usd: total, region, prices_as_of: asOf } = run.cost;
  byId("cost-hint").textContent = `${fmt.usd(total)} in all: every node's price for as long as it was billed, at the prices of ${region}, ${asOf || "no date"}.`;
  const colors = new Map(run.services.flatMap((service, i) => [[service.name, ownerColor(i)], [service.workload, ownerColor(i)]]));
  const sorted = lines.filter((line) => costOf(line) > 0).sort((a, b) => (a.owner === "") - (b.owner === "") || costOf(b) - costOf(a));
  const most = Math.max(1, maximum(sorted.map(costOf)));
  const legend = COST_PARTS.map(([, name, share]) => el("li", {}, el("span.swatch", { style: { background: partColor("--accent", share) } }), name));
  byId("cost-bars").replaceChildren(el("div.costs", {}, el("ul.legend", {}, legend),
    sorted.length ? sorted.map((line) => costRow(line, colors.get(line.owner) ?? "--muted", most)) : el("p.muted", {}, "Nothing was billed.")));
  nodeTable(run);
}

function lifeBar(node, duration) {
  const at = (t) => `${(100 * Math.min(duration, Math.max(0, t))) / duration}%`;
  const end = node.ended_s ?? duration;
  const ready = node.ready_s ?? end;
  const span = (cls, from, to) => el(`span${cls}`, { style: { left: at(from), width: `calc(${at(to)} - ${at(from)})` } });
  return el("div.life", { "aria-hidden": "true" }, span(".boot", node.launched_s, ready), span("", ready, end));
}

function nodeTable(run) {
  const columns = ["Node", "Instance type", "GPUs", "Capacity", "Zone", "Price per hour", "Launched", "Ready after", "Life", "Ended", "Cost"];
  const numeric = new Set(["GPUs", "Price per hour", "Launched", "Ready after", "Ended", "Cost"]);
  const rows = run.nodes.map((node) => el("tr", {},
    el("th", { scope: "row", style: { "font-weight": "500" } }, node.name, node.node_pool ? el("div.muted", { style: { "font-weight": "400", "font-size": "12.5px" } }, node.node_pool) : null),
    el("td", {}, node.instance_type),
    el("td.num", {}, node.gpus ? `${node.gpus} × ${node.gpu.toUpperCase()}` : "none"),
    el("td", {}, node.capacity_type), el("td", {}, node.zone),
    el("td.num", {}, fmt.usd(node.price_micro_usd_per_hour)),
    el("td.num", {}, fmt.clock(node.launched_s)),
    el("td.num", {}, node.ready_s === null ? NO_DATA : fmt.seconds(node.ready_s - node.launched_s)),
    el("td", {}, lifeBar(node, run.duration_s)),
    el("td.num", {}, node.ended_s === null ? NO_DATA : [fmt.clock(node.ended_s), node.end_reason ? el("div.muted", {}, node.end_reason) : null]),
    el("td.num", {}, fmt.usd(node.cost_micro_usd))));
  const heads = columns.map((name) => el(numeric.has(name) ? "th.num" : "th", { scope: "col" }, name));
  byId("nodes").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)));
}
