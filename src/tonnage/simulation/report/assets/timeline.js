// The charts of one run, and the policies over one another.

const LOG_FROM = 6; // a latency this many times its limit needs a log scale to stay readable


function replicaCharts(run) {
  const { series } = run;
  series.services.forEach((service, i) => {
    chart(byId("replica-charts"), {
      title: service.name, unit: "replicas", x: series.t_s, whole: true, ...shading(run, service.name),
      series: [
        { label: "Ready", kind: "stack", color: ownerColor(i), share: 0.85, values: service.replicas_ready },
        { label: "Starting", kind: "stack", color: ownerColor(i), share: 0.38, values: service.replicas_starting },
        { label: "Pending", kind: "stack", color: "--pending", share: 0.75, values: service.replicas_pending },
        { label: "Wanted", kind: "step", color: "--text", width: 1.5, dash: [4, 3], values: service.replicas_wanted },
      ],
    });
  });
  const all = { x: series.t_s, surges: run.services.flatMap((service) => service.surges), grace: sloOf(run).grace_s, height: 165 };
  chart(byId("fleet-charts"), {
    ...all, title: "Nodes", whole: true,
    series: [
      { label: "Ready", kind: "stack", color: "--accent", share: 0.8, values: series.nodes_ready },
      { label: "Starting", kind: "stack", color: "--accent", share: 0.35, values: series.nodes_starting },
    ],
  });
  chart(byId("fleet-charts"), {
    ...all, title: "GPUs", whole: true,
    series: [
      { label: "Allocated", kind: "stack", color: "--accent", share: 0.8, values: series.gpus_allocated },
      { label: "Free", kind: "stack", color: "--free", values: series.gpus_paid.map((v, i) => v - series.gpus_allocated[i]) },
    ],
  });
  chart(byId("fleet-charts"), {
    ...all, title: "Spend", format: fmt.usd,
    axisFormat: (v) => `$${fmt.compact(v / 1e6)}`,
    series: [{ label: "So far", kind: "area", color: "--accent", values: series.spend_micro_usd }],
  });
}

/** The surges of one service, for the backdrop of its charts. */
function shading(run, name) {
  const service = run.services.find((one) => one.name === name);
  return { surges: service ? service.surges : [], grace: sloOf(run).grace_s };
}

function latencyChart(parent, run, title, columns, limitMs, extra) {
  const top = maximum(columns.flatMap((column) => column.values));
  chart(parent, {
    title, x: run.series.t_s, format: fmt.ms, axisFormat: fmt.msTick, log: top > LOG_FROM * limitMs, unit: top > LOG_FROM * limitMs ? "log scale" : "",
    limit: { value: limitMs, label: `SLO ${fmt.ms(limitMs)}` }, series: columns, ...extra,
  });
}

function latencyCharts(run) {
  byId("latency-hint").textContent =
    "Of the requests whose first (TTFT) or last (TPOT) token fell in the interval. The dashed line is the SLO.";
  const parent = byId("latency-charts");
  run.series.services.forEach((service, i) => {
    const lines = (kind) => [
      { label: "p99", kind: "line", color: ownerColor(i), values: service[`${kind}_p99_ms`] },
      { label: "p50", kind: "line", color: ownerColor(i), share: 0.55, width: 1.4, values: service[`${kind}_p50_ms`] },
    ];
    latencyChart(parent, run, `TTFT of ${service.name}`, lines("ttft"), 1000 * sloOf(run).ttft_s, shading(run, service.name));
    latencyChart(parent, run, `TPOT of ${service.name}`, lines("tpot"), 1000 * sloOf(run).tpot_s, shading(run, service.name));
  });
}

function requestCharts(run) {
  const parent = byId("request-charts");
  const x = run.series.t_s;
  run.series.services.forEach((service, i) => {
    const base = { x, height: 170, ...shading(run, service.name) };
    chart(parent, {
      ...base, title: `Requests at ${service.name}`, whole: true, axisFormat: fmt.compact,
      series: [
        { label: "Waiting", kind: "area", color: "--pending", values: service.requests_waiting },
        { label: "Running", kind: "line", color: ownerColor(i), values: service.requests_running },
      ],
    });
    chart(parent, {
      ...base, title: `Arrivals at ${service.name}`, unit: "per second",
      series: [{ label: "Arrivals", kind: "area", color: ownerColor(i), values: service.arrivals_per_s }],
    });
    chart(parent, {
      ...base, title: `Quality at ${service.name}`, top: 1, format: fmt.percent, axisFormat: (v) => `${Math.round(100 * v)}%`,
      series: [
        { label: "Met the SLO", kind: "line", color: ownerColor(i), values: service.slo_share },
        { label: "KV cache", kind: "line", color: "--faint", width: 1.3, dash: [4, 3], values: service.kv_usage },
      ],
    });
  });
  parent.classList.toggle("three", true);
}

/** One chart a figure, one line a policy, over the union of the runs' times. */
function comparisonCharts(results, names) {
  const parent = byId("compare-charts");
  const first = results[0];
  const figure = (options, pick) => {
    const tables = results.map((run) => [run.series.t_s, pick(run) ?? run.series.t_s.map(() => null)]);
    const [x, ...columns] = uPlot.join(tables);
    const series = columns.map((values, i) => (
      { label: names[i], kind: options.kind ?? "line", color: policyColor(i), values: values.map((v) => v ?? null) }));
    chart(parent, { x, height: 170, ...options, series });
  };
  for (const { name } of first.services) {
    const of = (run) => run.series.services.find((service) => service.name === name);
    const limit = 1000 * sloOf(first).ttft_s;
    const top = maximum(results.flatMap((run) => of(run)?.ttft_p99_ms ?? []));
    figure({
      title: `TTFT p99 of ${name}`, unit: top > LOG_FROM * limit ? "log scale" : "", format: fmt.ms, axisFormat: fmt.msTick, log: top > LOG_FROM * limit,
      limit: { value: limit, label: `SLO ${fmt.ms(limit)}` }, ...shading(first, name),
    }, (run) => of(run)?.ttft_p99_ms);
  }
  for (const { name } of first.services) {
    const of = (run) => run.series.services.find((service) => service.name === name);
    figure({ title: `Ready replicas of ${name}`, kind: "step", whole: true, ...shading(first, name) }, (run) => of(run)?.replicas_ready);
  }
  const all = { surges: first.services.flatMap((service) => service.surges), grace: sloOf(first).grace_s };
  figure({ title: "GPUs paid for", kind: "step", whole: true, ...all }, (run) => run.series.gpus_paid);
  figure({ title: "Spend", format: fmt.usd, axisFormat: (v) => `$${fmt.compact(v / 1e6)}`, ...all }, (run) => run.series.spend_micro_usd);
}
