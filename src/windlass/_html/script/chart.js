// Time series: draws what `data-chart` of each .chart has, and again when that or the theme changes.
(() => {
  const charts = new Map();
  const tones = ["accent", "info", "violet", "warn", "good", "bad", "quiet"];

  function colour(tone, soft = false) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${tone}${soft ? "-soft" : ""}`) && resolve(`var(--${tone}${soft ? "-soft" : ""})`);
  }

  /** Canvas knows no light-dark(): let an element compute the colour. */
  function resolve(value) {
    const probe = document.createElement("span");
    probe.style.color = value;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  const formats = {
    count: (value) => (value >= 1e6 ? `${+(value / 1e6).toPrecision(3)}M` : value >= 1e3 ? `${+(value / 1e3).toPrecision(3)}k` : `${+value.toPrecision(3)}`),
    seconds: (value) => (value >= 3600 ? `${+(value / 3600).toPrecision(3)} h` : value >= 60 ? `${+(value / 60).toPrecision(3)} m` : value >= 1 ? `${+value.toPrecision(3)} s` : `${+(value * 1000).toPrecision(3)} ms`),
    percent: (value) => `${+(value * 100).toPrecision(3)} %`,
  };

  const two = (number) => String(number).padStart(2, "0");
  const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

  /** Times of an axis: days if the steps are days, else hours and minutes, and seconds if there are any. */
  function clocks(_chart, instants, _axis, _space, step) {
    return instants.map((instant) => {
      const at = new Date(instant * 1000);
      if (step >= 86400) return `${at.getDate()} ${months[at.getMonth()]}`;
      return `${two(at.getHours())}:${two(at.getMinutes())}${step < 60 ? `:${two(at.getSeconds())}` : ""}`;
    });
  }

  /** While nobody points at the chart, its legend shows the newest values. */
  function showNewest(chart) {
    if (chart.cursor.idx == null) chart.setLegend({ idx: chart.data[0].length - 1 });
  }

  function options(place, data) {
    const format = formats[place.dataset.unit] ?? formats.count;
    const line = colour("line");
    const quiet = colour("quiet");
    const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui, sans-serif" };
    return {
      width: place.clientWidth || 300,
      height: Number(place.dataset.height) || 180,
      cursor: { drag: { x: false, y: false } },
      legend: { live: true },
      scales: { y: { range: (_chart, _low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      hooks: { setCursor: [showNewest], setData: [showNewest], ready: [showNewest] },
      axes: [{ ...axis, values: clocks }, { ...axis, size: 56, values: (_chart, values) => values.map(format) }],
      series: [
        { label: "at", value: (_chart, at) => (at == null ? "" : new Date(at * 1000).toLocaleTimeString([], { hour12: false })) },
        ...data.series.map((one, number) => {
          const tone = one.tone || tones[number % tones.length];
          const bars = one.kind === "bars";
          return {
            label: one.label,
            stroke: colour(tone),
            fill: bars || one.kind === "area" ? colour(tone, true) : undefined,
            width: 1.5,
            points: { show: false },
            paths: bars ? uPlot.paths.bars({ size: [0.8, 24] }) : undefined,
            value: (_chart, value) => (value == null ? "–" : format(value)),
          };
        }),
      ],
    };
  }

  function draw(place) {
    const text = place.dataset.chart;
    const known = charts.get(place);
    const shape = (data) => data.series.map((one) => one.label).join();
    if (known?.text === text) return;
    const data = JSON.parse(text);
    const columns = [data.at, ...data.series.map((one) => one.values)];
    if (known && known.shape === shape(data)) {
      known.plot.setData(columns);
      known.text = text;
      return;
    }
    known?.plot.destroy();
    charts.set(place, { plot: new uPlot(options(place, data), columns, place), text, shape: shape(data) });
  }

  function update() {
    for (const [place, { plot }] of charts) {
      if (place.isConnected) continue;
      plot.destroy();
      charts.delete(place);
    }
    document.querySelectorAll(".chart").forEach(draw);
  }

  function redraw() {
    for (const { plot } of charts.values()) plot.destroy();
    charts.clear();
    update();
  }

  const sizes = new ResizeObserver(() => {
    for (const [place, { plot }] of charts) {
      if (place.clientWidth && place.clientWidth !== plot.width) plot.setSize({ width: place.clientWidth, height: plot.height });
    }
  });

  windlass.onContent(() => {
    update();
    charts.forEach((_chart, place) => sizes.observe(place));
  });
  document.addEventListener("windlass:theme", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
})();
