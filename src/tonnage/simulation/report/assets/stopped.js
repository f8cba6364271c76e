// What does not run, before all else: which, since when, why, where that is written, and what would help.

const HOLDS = 0.99; // of a Service's requests

function notRunning(results, names) {
  const found = new Map(); // the same in several runs stands once
  results.forEach((run, i) => (run.not_running ?? []).forEach((one) => {
    const key = [fmt.ref(one.object), one.rule, one.cause].join("\n");
    if (!found.has(key)) found.set(key, { one, runs: new Set() });
    found.get(key).runs.add(names[i]); // one may say it of two lines
  }));
  byId("not-running").replaceChildren(...[...found.values()].map(({ one, runs }) =>
    stopped(one, results.length > runs.size ? ` under ${[...runs].join(", ")}` : "")));
}

function stopped(one, under) {
  const effect = one.stage === "no-effect";
  const pods = one.wanted ? one.pods < one.wanted ? `, ${one.pods} of ${one.wanted} pods` : ", no pod Ready" : "";
  const since = one.wanted ? ` since ${fmt.clock(one.since_s)}` : "";
  const restarts = one.restarts ? `, ${plural(one.restarts, "restart")}` : "";
  return el("div.callout.error.stopped", { role: "alert" },
    el("div", {}, el("b", {}, `${effect ? "No effect" : "Not running"}: ${fmt.ref(one.object)}`), `${pods}${since}${restarts}${under} `,
      el("span.rule", {}, one.rule)),
    el("div", {}, one.cause),
    one.event && !one.event.includes(one.cause) ? el("div.mono", {}, `kubectl: ${one.event}`) : null,
    one.help ? el("div", {}, `help: ${one.help}`) : null,
    el("div.place.mono", {}, [place(one.where), one.where.field].filter(Boolean).join("  ")));
}

/** What the marks of the comparison mean here. */
function compareHint(results) {
  const served = results.some((run) => run.services.length);
  const holds = results.some((run) => run.services.every((s) => s.overall.share === null || s.overall.share >= HOLDS));
  const goal = `${100 * HOLDS}% of each Service's requests`;
  const best = !served ? "The best value of a row is marked" : holds
    ? `The best value of a row is marked, of the runs that hold the SLO (${goal})` : `No run holds the SLO (${goal}): nothing is marked as best`;
  byId("compare-hint").textContent = `The same input under each policy. ${best}; rows without a mark are for information or equal.`;
}
