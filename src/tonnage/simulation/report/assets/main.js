// Starts the page: reads the data, shows one run, follows the policy switch, the hash, the zoom and the theme.

const data = JSON.parse(byId("data").textContent);
const names = data.headlines.map((head) => head.label);
const parts = []; // of the run shown: what must be taken down before another is shown
let shared = []; // charts of the comparison, which stay

const SECTIONS = [
  ["compare", "Comparison"], ["summary", "Summary"], ["training", "Training"], ["replicas", "Replicas"], ["latency", "Latency"], ["requests", "Requests"],
  ["fleet", "Fleet"], ["pods", "Pods"], ["cost", "Cost"], ["findings", "Findings"], ["decisions", "Decisions"], ["events", "Events"],
];

function showRun(index) {
  const run = data.results[index];
  const head = data.headlines[index];
  byId("main").style.minHeight = `${byId("main").offsetHeight}px`; // so that the page does not jump
  destroyCharts(shared);
  parts.splice(0).forEach((part) => part.destroy());
  for (const id of ["replica-charts", "fleet-charts", "latency-charts", "request-charts"]) byId(id).replaceChildren();
  view.start(Math.max(...data.results.map((one) => one.duration_s)));
  intro(run, head);
  summary(run, head);
  training(run, head);
  for (const id of ["latency", "requests"]) byId(id).hidden = !run.services.length;
  replicaCharts(run);
  latencyCharts(run);
  requestCharts(run);
  const heat = heatMap(run);
  podTimeline(run);
  costs(run);
  findings(run);
  parts.push(heat, decisionLog(run), eventLog(run));
  view.watchers.push(zoomCharts, () => heat.draw());
  theme.watchers = [redrawCharts, () => heat.draw()];
  sectionLinks(run);
  if (data.comparison) {
    comparisonTable(data.comparison, index);
    byId("run-heading").textContent = names[index];
  }
  byId("main").style.minHeight = "";
}

function sectionLinks(run) {
  const counts = { findings: run.findings.length, decisions: run.decisions.length, events: run.events.length };
  byId("tabs").replaceChildren(...SECTIONS.filter(([id]) => !byId(id).hidden).map(([id, name]) =>
    el("a", { href: `#${id}`, onclick: (event) => { event.preventDefault(); byId(id).scrollIntoView(); } },
      name, counts[id] === undefined ? null : el("span.num", {}, fmt.count(counts[id])))));
  markSection();
}

function markSection() {
  const links = [...byId("tabs").children];
  const passed = links.filter((link) => byId(link.getAttribute("href").slice(1)).getBoundingClientRect().top < 160);
  const current = passed.length ? passed[passed.length - 1] : links[0];
  for (const link of links) link.removeAttribute("aria-current");
  current.setAttribute("aria-current", "true");
  const tabs = byId("tabs");
  if (tabs.scrollWidth > tabs.clientWidth) tabs.scrollLeft = current.offsetLeft - tabs.offsetLeft - 40;
}

function policySwitch(selected) {
  const box = byId("switch");
  const buttons = names.map((name, i) => el("button", {
    type: "button", role: "radio", "aria-checked": String(i === selected), tabindex: i === selected ? "0" : "-1", onclick: () => pick(i),
  }, name));
  const pick = (index) => {
    buttons.forEach((button, i) => { button.setAttribute("aria-checked", String(i === index)); button.tabIndex = i === index ? 0 : -1; });
    choose({ policy: names[index] });
    showRun(index);
  };
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = (buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length;
    buttons[next].focus();
    pick(next);
  });
  box.replaceChildren(...buttons);
  box.hidden = false;
}

function start() {
  const filtered = readHash();
  const selected = Math.max(0, names.indexOf(choice.policy));
  startTheme();
  byId("title").textContent = data.results[0].scenario;
  view.start(Math.max(...data.results.map((one) => one.duration_s)));
  notRunning(data.results, names);
  if (data.comparison) {
    compareHint(data.results);
    byId("compare").hidden = byId("run-heading").hidden = byId("about").hidden = false;
    byId("about").textContent = `${plural(names.length, "run")} side by side: ${names.join("; ")}. Below the comparison stands the run chosen at the top.`;
    policySwitch(selected);
    comparisonCharts(data.results, names);
    shared = [...charts];
  }
  showRun(selected);
  byId("reset-zoom").addEventListener("click", () => view.reset());
  window.addEventListener("scroll", markSection, { passive: true });
  window.addEventListener("hashchange", () => { if (readHash()) showRun(Math.max(0, names.indexOf(choice.policy))); });
  if (filtered && (choice.q || choice.kind || choice.loop || choice.target)) byId("decisions").scrollIntoView();
  document.documentElement.dataset.ready = "true";
}

start();
