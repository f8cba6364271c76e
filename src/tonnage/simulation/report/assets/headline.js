// The top of the page: title, figures of the run, a card a service, the comparison table; and the findings.

function intro(run, head) {
  byId("crumb").textContent = `${run.scenario}, ${head.label}`;
  const parts = [];
  const bold = (text) => el("b", {}, text);
  if (head.share !== null) parts.push(bold(fmt.percent(head.share)), " of requests outside the grace window met the SLO");
  if (head.grace_share !== null) parts.push(head.share !== null ? "; " : "", bold(fmt.percent(head.grace_share)), " inside it");
  if (parts.length) parts.push(". ");
  if (head.training) parts.push(bold(`${head.training.done} of ${head.training.workloads}`), " training workloads were done. ");
  parts.push("The fleet cost ", bold(fmt.usd(run.cost.total_micro_usd)), " for ", bold(`${fmt.hours(run.gpu_hours.paid)} GPU-hours`),
    " and grew to ", bold(plural(head.max_nodes, "node")), ".");
  byId("lead").replaceChildren(...parts);
  const meta = {
    Policy: run.policy, Duration: fmt.seconds(run.duration_s), Seed: String(run.seed), Traffic: run.traffic_source || "none", Manifests: run.manifests,
    Prices: `${run.cost.region}, ${run.cost.prices_as_of || "no date"}`,
  };
  byId("meta").replaceChildren(...Object.entries(meta).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  byId("check").replaceChildren(...checkNote(run.check));
  byId("footer").textContent = `Made by Tonnage ${run.tonnage_version}. This file loads nothing from a network and carries its data as JSON (${run.schema}).`;
}

function checkNote(check) {
  if (!check.enabled || !check.violations.length) return [];
  const list = el("ul", {}, check.violations.slice(0, 20).map((text) => el("li", {}, text)));
  return [el("div.callout.error", { role: "alert" }, el("b", {}, `${plural(check.violations.length, "invariant")} violated in ${plural(check.steps, "step")}`), list)];
}

function tile(label, value, note, extra) {
  return el("div.tile", {}, el("div.label", {}, label), el("div.value", {}, value), extra ?? null, el("div.note", {}, note));
}

function tiles(run, head) {
  const { paid, allocated, busy } = run.gpu_hours;
  const part = (share, color) => el("span", { style: { width: `${100 * Math.max(0, share)}%`, background: color } });
  const meter = el("div.meter", { role: "img", "aria-label": `${fmt.percent(paid ? busy / paid : null)} of paid GPU-hours busy` }, paid
    ? [part(busy / paid, "var(--accent)"), part((allocated - busy) / paid, "color-mix(in srgb, var(--accent) 40%, var(--surface))")] : []);
  const { error = 0, warning = 0, info = 0 } = head.findings;
  byId("tiles").replaceChildren(
    tile("GPU-hours paid", fmt.hours(paid), `${fmt.hours(allocated)} allocated, ${fmt.hours(busy)} busy`, meter),
    tile("Cost", fmt.usd(run.cost.total_micro_usd), run.services.length ? `${fmt.usd(head.micro_usd_per_million_tokens)} per million tokens` : ""),
    tile("Most nodes at once", fmt.count(head.max_nodes), `${head.nodes_bought} launched, ${head.nodes_returned} terminated`),
    run.services.length ? tile("Requests", fmt.count(head.requests), `${fmt.compact(head.tokens)} tokens`)
      : tile("Training done", `${head.training?.done ?? 0} of ${head.training?.workloads ?? 0}`, `${fmt.hours(head.training?.gpu_hours.useful ?? null)} GPU-hours useful`),
    tile("Findings", fmt.count(error + warning + info), `${plural(error, "error")}, ${plural(warning, "warning")}`
      + (run.check.enabled && !run.check.violations.length ? "; invariants held" : "")));
}

function attainment(label, part, color, none) {
  const missed = [["TTFT", part.missed_ttft], ["TPOT", part.missed_tpot], ["unfinished", part.unfinished]]
    .filter(([, n]) => n).map(([name, n]) => `${fmt.count(n)} ${name}`);
  const bar = el("div.meter", { "aria-hidden": "true" }, part.share === null ? []
    : el("span", { style: { width: `${100 * part.share}%`, background: `var(${color})` } }));
  const note = part.share === null ? none : `${fmt.count(part.met)} of ${fmt.count(part.requests)} requests`;
  return el("div", {}, el("div.label", {}, label), el("div.value", {}, fmt.percent(part.share)), bar, el("div.note", {}, note),
    missed.length ? el("div.note", {}, `missed: ${missed.join(", ")}`) : null);
}

function serviceCard(run, service, color) {
  const over = (value, limit) => (value !== null && value > limit ? "td.over" : "td");
  const latencyRow = (name, q, limit) => el("tr", {}, el("th", { scope: "row" }, name),
    ["p50", "p95", "p99"].map((p) => el(over(q[p], limit), {}, fmt.ms(q[p]))));
  const plain = (name, ...values) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { colspan: "3" }, ...values));
  const cold = service.cold_start_s;
  const floor = service.min_replicas_allowed === null ? "" : `, minimum ${service.min_replicas_allowed}`;
  return el("article.service.card", { "aria-label": service.name },
    el("header", {}, swatch(color), el("h3", {}, service.name), el("span.model", { title: service.model }, service.model)),
    el("div.attain", {}, attainment("SLO met outside the grace window", service.overall, color, "no requests"),
      attainment("In the grace window: what the surge cost", service.grace, color, "no surge")),
    el("table.facts", {},
      el("thead", {}, el("tr", {}, el("td"), ["p50", "p95", "p99"].map((text) => el("th.num", { scope: "col" }, text)))),
      el("tbody", {},
        latencyRow("TTFT", service.ttft_ms, 1000 * sloOf(run).ttft_s),
        latencyRow("TPOT", service.tpot_ms, 1000 * sloOf(run).tpot_s),
        plain("Ready replicas", `${service.min_ready_replicas} to ${service.max_ready_replicas}${floor}`),
        plain("Cold start", cold.p50 === null ? "none" : `${fmt.seconds(cold.p50)} typical, ${fmt.seconds(cold.p99)} p99`),
        plain("Tokens", `${fmt.compact(service.prompt_tokens)} prompt, ${fmt.compact(service.generated_tokens)} generated`),
        plain("Preemptions", fmt.count(service.preemptions)))));
}

function summary(run, head) {
  const { ttft_s, tpot_s, grace_s } = sloOf(run);
  byId("summary-hint").textContent = !run.slo ? "" : `The SLO: first token within ${fmt.seconds(ttft_s)}, then ${fmt.ms(1000 * tpot_s)} per token. `
    + `Requests that arrive in the first ${fmt.seconds(grace_s)} of a surge are counted apart: no policy could have reacted yet.`;
  tiles(run, head);
  byId("services").replaceChildren(...run.services.map((service, i) => serviceCard(run, service, ownerColor(i))));
}

/** The table of all runs; `shown` is the column of the run below. */
function comparisonTable(comparison, shown) {
  const body = [];
  let group = null;
  for (const row of comparison.rows) {
    if (row.group !== group) {
      group = row.group;
      body.push(el("tr.group", {}, el("th", { scope: "rowgroup", colspan: comparison.columns.length + 1 }, group || "Whole run")));
    }
    const cells = row.texts.map((text, i) => el("td", { class: [row.best[i] && "best", i === shown && "shown"].filter(Boolean).join(" ") || null },
      text, row.best[i] ? el("span.visually-hidden", {}, " (best)") : null));
    body.push(el("tr", {}, el("th", { scope: "row" }, row.label), cells));
  }
  const heads = comparison.columns.map((name, i) => el("th", { scope: "col", class: i === shown ? "shown" : null }, swatch(policyColor(i)), name));
  byId("compare-table").replaceChildren(el("table.compare", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span.visually-hidden", {}, "Figure")), heads)), el("tbody", {}, body)));
}

const place = (where) => [where.file, where.line || null].filter(Boolean).join(":");

function findings(run) {
  const rank = { error: 0, warning: 1, info: 2 };
  const sorted = [...run.findings].sort((a, b) => (rank[a.severity] ?? 3) - (rank[b.severity] ?? 3));
  const cards = sorted.map((finding) => el("article.finding", {},
    el("div", {}, el(`span.pill.${finding.severity}`, {}, finding.severity)),
    el("div.what", {}, el("span.rule", {}, finding.rule), el("span.muted", {}, fmt.ref(finding.object))),
    el("div.more", {}, finding.message),
    el("div.place.mono", {}, [place(finding.where), finding.where.field].filter(Boolean).join("  "),
      finding.evidence.length ? `  (${finding.evidence.map(([name, value]) => `${name} ${fmt.value(value)}`).join(", ")})` : "")));
  byId("finding-list").replaceChildren(el("div.card", {}, cards.length ? cards : el("p.empty", {}, "Nothing found.")));
}
