// Training work: one row a workload, with its phases over the run and where its GPU-hours went.

const PHASES = {
  waiting: ["pending", ".waiting"], starting: ["pods start", ".boot"], loading: ["loads a checkpoint", ".boot"], running: ["runs", ""],
};
const HOURS = [
  ["useful", "useful", 1], ["checkpoints", "checkpoints", 0.6], ["starting", "starting", 0.38], ["broken", "waiting for replacements", 0.25],
  ["lost", "lost", 0], ["half", "partial gang", 0],
];

/** The phases of one workload, or those of several copies over one another. */
function phaseBar(group, duration) {
  const at = (t) => `${(100 * Math.min(duration, t)) / duration}%`;
  const spans = group.flatMap((work) => work.phases.map(([start, state], i) => [start, work.phases[i + 1]?.[0] ?? duration, state]))
    .filter(([, , state]) => PHASES[state]);
  const label = group.length > 1 ? `${group.length} copies` : spans.map(([start, end, state]) => `${PHASES[state][0]} from ${fmt.clock(start)} to ${fmt.clock(end)}`).join(", ");
  const opacity = group.length > 1 ? Math.max(0.08, 1.2 / Math.sqrt(group.length) / 2) : null;
  return el("div.life.wide", { role: "img", "aria-label": label }, spans.map(([start, end, state]) => el(`span${PHASES[state][1]}`, {
    title: `${PHASES[state][0]}, ${fmt.clock(start)} to ${fmt.clock(end)}`,
    style: { left: at(start), width: `calc(${at(end)} - ${at(start)})`, ...(opacity ? { opacity: String(opacity) } : {}) },
  })));
}

function hoursCell(hours) {
  const parts = HOURS.filter(([key]) => hours[key] > 0);
  const title = parts.map(([key, name]) => `${fmt.hours(hours[key])} ${name}`).join(" · ");
  return el("td.num", { title }, fmt.hours(hours.useful), hours.lost > 0 ? el("div.muted", {}, `${fmt.hours(hours.lost)} lost`) : null);
}

const meanOf = (values) => {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
};

/** One row a workload; its copies have one together, with their means and sums. */
function trainingRow([name, group], duration) {
  const clock = (key) => { const value = meanOf(group.map((work) => work[key])); return value === null ? NO_DATA : fmt.clock(value); };
  const sum = (pick) => group.reduce((total, work) => total + pick(work), 0);
  const first = group[0];
  const done = group.filter((work) => work.state === "done").length;
  const failed = group.some((work) => work.state === "failed");
  const over = first.state === "done" || first.state === "failed" || first.progress === null;
  const state = group.length > 1 ? `${done} of ${group.length} done` : over ? first.state : `${first.state}, ${fmt.percent(first.progress)}`;
  const pill = failed ? ".error" : done === group.length ? ".good" : ".info";
  const hours = Object.fromEntries(HOURS.map(([key]) => [key, sum((work) => work.gpu_hours[key])]));
  const factor = meanOf(group.map((work) => work.communication_factor));
  const evictions = sum((work) => work.evictions);
  return el("tr", {},
    el("th", { scope: "row", style: { "font-weight": "500" } }, name, el("div.muted", { style: { "font-weight": "400", "font-size": "12.5px" } },
      `${group.length > 1 ? `${group.length} × ` : ""}${first.kind}, ${plural(first.pods, "pod")}, ${plural(first.gpus, "GPU")}`)),
    el("td", {}, el(`span.pill${pill}`, {}, state)),
    el("td", {}, phaseBar(group, duration)),
    el("td.num", {}, clock("queue_wait_s")), el("td.num", {}, clock("makespan_s")),
    hoursCell(hours),
    el("td.num", {}, factor === null ? NO_DATA : factor.toFixed(3)),
    el("td.num", {}, fmt.count(sum((work) => work.restarts)), evictions ? el("div.muted", {}, plural(evictions, "eviction")) : null));
}

function training(run, head) {
  byId("training").hidden = !run.training;
  if (!run.training) return;
  const { done, workloads, failed, gpu_hours: hours } = head.training;
  const parts = HOURS.filter(([key]) => hours[key] > 0).map(([key, name]) => `${fmt.hours(hours[key])} ${name}`);
  byId("training-hint").textContent = `${done} of ${plural(workloads, "workload")} done${failed ? `, ${failed} failed` : ""}. `
    + `${fmt.hours(hours.allocated)} GPU-hours were held: ${parts.join(", ") || "none"}.`;
  const groups = new Map();
  for (const work of run.training) groups.set(work.copy_of, [...(groups.get(work.copy_of) ?? []), work]);
  const names = ["Workload", "State", "Over the run", "Wait", "Took", "GPU-hours", "Communication", "Restarts"];
  const heads = names.map((name, i) => el(i > 2 ? "th.num" : "th", { scope: "col" }, name));
  byId("training-table").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, heads)),
    el("tbody", {}, [...groups].map((group) => trainingRow(group, run.duration_s)))));
}
