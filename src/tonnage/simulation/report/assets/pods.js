// Pods on the nodes with GPUs, as bars over the run, and what kept those that waited. Made of the events.

const MOST_LANES = 240;
const MOST_WAITS = 40;

/** [{ pod, node, from, ready, to }] of pods on nodes, and [{ pod, from, to, cause }] of those that waited for one. */
function podSpans(run) {
  const spans = [];
  const waits = [];
  const open = new Map();
  const waiting = new Map();
  const ends = new Map(run.nodes.map((node) => [node.name, node.ended_s ?? run.duration_s]));
  const close = (pod, t) => { const span = open.get(pod); if (span) { span.to = Math.min(t, ends.get(span.node) ?? t); open.delete(pod); } };
  const placed = (pod, t) => { const wait = waiting.get(pod); if (wait) { wait.to = t; waiting.delete(pod); } };
  for (const event of [...run.events].sort((a, b) => a.t_s - b.t_s)) {
    if (!event.object.startsWith("Pod ")) continue;
    const pod = event.object.slice(4);
    if (event.reason === "Scheduled") {
      close(pod, event.t_s);
      placed(pod, event.t_s);
      open.set(pod, { pod, node: event.message.replace(/^assigned to /, ""), from: event.t_s, ready: null, to: run.duration_s });
      spans.push(open.get(pod));
    } else if (event.reason === "Ready" && open.has(pod)) open.get(pod).ready ??= event.t_s;
    else if (event.reason === "Killing") { close(pod, event.t_s); placed(pod, event.t_s); }
    else if (event.reason === "FailedScheduling" && !waiting.has(pod)) {
      close(pod, event.t_s);
      waiting.set(pod, { pod, from: event.t_s, to: run.duration_s, cause: event.message });
      waits.push(waiting.get(pod));
    }
  }
  for (const [pod] of [...open]) close(pod, run.duration_s);
  return { spans, waits };
}

/** Spans in as few rows as they fit one after the other. */
function podLanes(spans) {
  const lanes = [];
  for (const span of [...spans].sort((a, b) => a.from - b.from)) {
    const free = lanes.find((lane) => lane[lane.length - 1].to <= span.from);
    if (free) free.push(span); else lanes.push([span]);
  }
  return lanes;
}

function podBar(lane, duration) {
  const at = (t) => `${(100 * Math.min(duration, t)) / duration}%`;
  const bar = (span, start, end, kind, what) => el(`span${kind}`, {
    title: `${span.pod}: ${what}, ${fmt.clock(start)} to ${fmt.clock(end)}`,
    style: { left: at(start), width: `calc(${at(end)} - ${at(start)} - 1px)` },
  });
  const label = lane.map((span) => `${span.pod} from ${fmt.clock(span.from)} to ${fmt.clock(span.to)}`).join(", ");
  return el("div.life.wide.pod-bar", { role: "img", "aria-label": label }, lane.flatMap((span) => {
    const ready = Math.min(span.ready ?? span.to, span.to);
    return [ready > span.from ? bar(span, span.from, ready, ".boot", "starts") : null,
      span.to > ready ? bar(span, ready, span.to, "", "Ready") : null].filter(Boolean);
  }));
}

function podNodeRows(node, lanes, duration) {
  return lanes.map((lane, i) => el("tr", {},
    i ? null : el("th", { scope: "rowgroup", rowspan: String(lanes.length) }, node.name,
      el("div.muted.node-type", {}, `${node.instance_type}, ${plural(node.gpus, "GPU")}`)),
    el("td.pod-names", {}, [...new Set(lane.map((span) => span.pod.replace(/^.*\//, "")))].slice(0, 3).join(", "),
      lane.length > 3 ? ` and ${lane.length - 3} more` : null),
    el("td", {}, podBar(lane, duration))));
}

function waitTable(waits) {
  if (!waits.length) return el("p.empty", {}, "No pod was unschedulable.");
  const longest = [...waits].sort((a, b) => b.to - b.from - (a.to - a.from) || a.from - b.from);
  const heads = ["Pod", "From", "Waited", "Cause"].map((name, i) => el(i === 1 || i === 2 ? "th.num" : "th", { scope: "col" }, name));
  const rows = longest.slice(0, MOST_WAITS).map((wait) => el("tr", {}, el("th", { scope: "row" }, wait.pod), el("td.num", {}, fmt.clock(wait.from)),
    el("td.num", {}, fmt.seconds(wait.to - wait.from)), el("td.cause", {}, wait.cause)));
  return el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows));
}

function podTimeline(run) {
  const { spans, waits } = podSpans(run);
  const drawn = [];
  let left = 0;
  for (const node of run.nodes.filter((one) => one.gpus)) {
    const lanes = podLanes(spans.filter((span) => span.node === node.name));
    if (!lanes.length) continue;
    if (drawn.length + lanes.length > MOST_LANES) { left += lanes.length; continue; }
    drawn.push(...podNodeRows(node, lanes, run.duration_s));
  }
  byId("pods").hidden = !drawn.length && !waits.length;
  if (byId("pods").hidden) return;
  const more = left ? ` ${plural(left, "row")} more are not drawn.` : "";
  const late = waits.length > MOST_WAITS ? ` Of ${fmt.count(waits.length)} waits the ${MOST_WAITS} longest.` : "";
  byId("pods-hint").textContent = `One row for each pod that a node has at a time: hatched while it starts, full while it is Ready.${more}`;
  byId("waits-hint").textContent = `What the scheduler first reported for pods that were unschedulable.${late}`;
  const heads = ["Node", "Pods", `0:00:00 to ${fmt.clock(run.duration_s)}`].map((name) => el("th", { scope: "col" }, name));
  byId("pod-table").replaceChildren(el("table.pod-lanes", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, drawn)));
  byId("wait-table").replaceChildren(waitTable(waits));
}
