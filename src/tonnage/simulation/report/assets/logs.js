// The decision log and the events, with their filters.

const haystacks = new WeakMap();

/** Everything in a record that a reader may search for, in lower case. */
function haystack(record) {
  if (!haystacks.has(record)) haystacks.set(record, JSON.stringify(Object.values(record)).toLowerCase());
  return haystacks.get(record);
}

const words = (query) => query.toLowerCase().split(/\s+/).filter(Boolean);
const unique = (values) => [...new Set(values)].sort();

function searchField(label, key, apply) {
  return el("input", {
    type: "search", placeholder: label, "aria-label": label, value: choice[key], autocomplete: "off", spellcheck: "false",
    oninput: (event) => { choose({ [key]: event.target.value }); apply(); },
  });
}

function selectField(label, key, values, apply) {
  const options = values.map((value) => el("option", { value, selected: value === choice[key] }, value));
  return el("select", { "aria-label": label, onchange: (event) => { choose({ [key]: event.target.value }); apply(); } },
    el("option", { value: "" }, label), options);
}

function alternativesTable(alternatives) {
  if (!alternatives.length) return null;
  const rows = alternatives.map(([name, why, score]) => el("tr", {}, el("td", {}, name), el("td", {}, score === null ? "" : fmt.number(score)), el("td", {}, why)));
  return el("table", {}, el("thead", {}, el("tr", {}, ["It beat", "Score", "Because"].map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows));
}

function decisionDetail(record) {
  const pairs = record.evidence.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, fmt.value(value))));
  return [
    el("div", {}, record.summary),
    el("div.verdict", {}, record.verdict),
    pairs.length ? el("dl.pairs", {}, pairs) : null,
    alternativesTable(record.alternatives),
    el("div.muted", {}, `${record.target} · ${record.outcome}`),
  ];
}

function decisionLine(record) {
  const applied = record.outcome === "Applied";
  return [
    el("span.caret", { "aria-hidden": "true" }),
    el("span.muted", {}, fmt.clock(record.t_s)),
    el("b", {}, record.kind),
    el("span.muted", {}, record.loop),
    el("span.wide", { title: record.verdict }, record.summary, el("span.muted", {}, ` · ${record.verdict}`)),
    el("span.last", {}, applied ? el("span.muted", {}, "Applied") : el("span.pill.warning", { title: record.outcome }, record.outcome)),
  ];
}

function decisionLog(run) {
  const parent = byId("decision-log");
  const count = el("span.count", { id: "decision-count", role: "status" });
  const loops = unique(run.decisions.map((record) => record.loop));
  if (!(choice.kind in run.decision_counts)) choice.kind = ""; // chosen in another run
  if (!loops.includes(choice.loop)) choice.loop = "";
  const chips = new Map();
  const apply = () => {
    const sought = words(choice.q);
    const target = choice.target.toLowerCase();
    const shown = run.decisions.filter((record) =>
      (!choice.kind || record.kind === choice.kind) && (!choice.loop || record.loop === choice.loop)
      && (!target || record.target.toLowerCase().includes(target)) && sought.every((word) => haystack(record).includes(word)));
    count.textContent = `${fmt.count(shown.length)} of ${plural(run.decisions.length, "decision")}`;
    for (const [kind, chip] of chips) chip.setAttribute("aria-pressed", String(kind === choice.kind));
    list.show(shown);
  };
  for (const kind of Object.keys(run.decision_counts)) {
    chips.set(kind, el("button", { type: "button", onclick: () => { choose({ kind: choice.kind === kind ? "" : kind }); apply(); } },
      kind, el("b", {}, fmt.count(run.decision_counts[kind]))));
  }
  const targets = el("datalist", { id: "targets" }, unique(run.decisions.map((record) => record.target)).map((value) => el("option", { value })));
  const target = searchField("Target", "target", apply);
  target.setAttribute("list", "targets");
  parent.replaceChildren(
    el("div.chips", { role: "group", "aria-label": "Kinds of decision" }, [...chips.values()]),
    el("div.filters", { role: "search", "aria-label": "Decisions" }, searchField("Search decisions", "q", apply),
      selectField("All loops", "loop", loops, apply), target, targets, count));
  const list = new WindowedList(parent, { label: "Decisions", cls: "decision-line", line: decisionLine, detail: decisionDetail });
  apply();
  return list;
}

function eventLine(record) {
  return [
    el("span.muted", {}, fmt.clock(record.t_s)),
    el("span", {}, record.type === "Warning" ? el("span.pill.warning", {}, "Warning") : el("span.muted", {}, record.type)),
    el("b", {}, record.reason),
    el("span.muted.object", { title: record.object }, record.object),
    el("span.wide", { title: record.message }, record.message),
    el("span.muted.num", {}, record.count > 1 ? `× ${record.count}` : ""),
  ];
}

function eventDetail(record) {
  return [el("div.verdict", {}, record.message), el("div.muted", {}, `${record.object} · ${record.type} ${record.reason} · ${plural(record.count, "time")}`)];
}

function eventLog(run) {
  const parent = byId("event-log");
  const count = el("span.count", { id: "event-count", role: "status" });
  const apply = () => {
    const sought = words(choice.events);
    const shown = run.events.filter((record) =>
      (!choice.type || record.type === choice.type) && sought.every((word) => haystack(record).includes(word)));
    count.textContent = `${fmt.count(shown.length)} of ${plural(run.events.length, "event")}`;
    list.show(shown);
  };
  parent.replaceChildren(el("div.filters", { role: "search", "aria-label": "Events" }, searchField("Search events", "events", apply),
    selectField("All types", "type", unique(run.events.map((record) => record.type)), apply), count));
  const list = new WindowedList(parent, { label: "Events", cls: "event-line", line: eventLine, detail: eventDetail });
  apply();
  return list;
}
