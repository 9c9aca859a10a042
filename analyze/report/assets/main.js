// The page: its head, its sections in order, and light or dark.

const themes = { auto: "theme: as the system", light: "theme: light", dark: "theme: dark" };

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = "auto";
  const button = el("button", { type: "button", id: "theme", click: () => {
    const all = Object.keys(themes);
    chosen = all[(all.indexOf(chosen) + 1) % all.length];
    apply();
  } });
  function apply() {
    const is = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
    document.documentElement.dataset.theme = is;
    button.textContent = themes[chosen];
  }
  dark.addEventListener("change", apply);
  addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; });
  addEventListener("afterprint", apply);
  apply();
  return button;
}

function head() {
  const c = page.completeness;
  const m = page.traces[0].summary.meta;
  const end = page.traces[0].summary.last_ns;
  document.getElementById("top").append(
    el("div", { class: "headline" }, el("div", {}, el("h1", {}, page.title),
      el("p", { class: "dim" }, [
        m.host ? "on " + m.host : "", started(m).replace("T", " ").replace(/(\.\d+)?Z$/, " UTC"), end ? span(big(end)) + " long" : "",
        several ? plural(BigInt(page.traces.length + (page.traces_left_out || 0)), "trace") : "", m.driver ? "driver " + m.driver : "", m.simulated ? "simulated GPU" : "",
      ].filter(Boolean).join(" · "))), el("div", { class: "controls" }, theme())),
    el("p", {}, el("span", { class: "badge " + (c.complete ? "good" : "bad"), id: "complete" }, c.complete ? "✓ complete" : "! partial"),
      c.complete ? " no event is missing" : " events are missing: " + c.partial.join("; ")),
    page.limits ? el("p", {}, "Limited to: ", el("code", {}, page.limits)) : "",
    tiles());
}

function tiles() {
  const out = el("div", { class: "tiles" });
  const put = (name, n, more) => out.append(el("div", { class: "tile" }, el("span", { class: "dim" }, name), el("b", {}, human(n)), el("div", { class: "dim" }, grouped(n) + " bytes"), el("div", { class: "dim" }, more)));
  let failures = 0n, events = 0n;
  page.traces.forEach((t, i) => {
    failures += big(t.summary.out_of_memory.told);
    events += big(t.summary.events);
    for (const d of (t.summary.devices || []).slice(0, 4)) {
      if (out.children.length >= 12) return;
      const on = (several ? traceName(i) + ", " : "") + deviceName(d.device);
      put("peak used, " + on, big(d.peak_used.bytes), "at " + seconds(big(d.peak_used.at_ns)));
      put("peak acquired, " + on, big(d.peak_acquired.bytes), "at " + seconds(big(d.peak_acquired.at_ns)));
      if (d.peak_nvml) put("peak by NVML, " + on, big(d.peak_nvml.bytes), "of " + (big(d.total) > 0n ? human(big(d.total)) : "unknown") + ", sampled");
    }
  });
  out.append(el("div", { class: "tile" }, el("span", { class: "dim" }, "out of memory"), el("b", {}, failures === 0n ? "never" : plural(failures, "time")),
    el("div", { class: "dim" }, plural(events, "event") + " recorded")));
  return out;
}

function section(id, title, ...body) {
  document.getElementById("main").append(el("section", { id, "aria-labelledby": id + "-title" }, el("h2", { id: id + "-title" }, title), body));
  document.querySelector("#nav ul").append(el("li", {}, el("a", { href: "#" + id }, title)));
}

// each gives what a trace has to say, under its name where there are several.
function each(make) {
  return page.traces.flatMap((t, i) => {
    const body = make(t, i);
    if (!body || [body].flat(Infinity).every((b) => !b)) return [];
    return several ? [el("h3", {}, t.path), body].flat() : body;
  });
}

function main() {
  document.getElementById("nav").append(el("ul"));
  head();
  const failed = page.traces.some((t) => (t.oom.failures || []).length || (t.oom.retried || []).length);
  if (failed) section("oom", "Out of memory", each(oomCards));
  const graph = flameGraph();
  section("time", "Memory over time", each((t, i) => [timeline(t, (device, at) => graph.choose(i, device, at))]));
  section("flame", "Flame graph", graph.body);
  section("lines", "Lines", lineTables());
  if (page.traces.some((t) => t.names.length)) section("contexts", "Contexts", each(contextTables));
  section("devices", "Devices", each(deviceTables));
  if (page.traces.some((t) => t.peaks.length)) section("peak", "What the peak was made of", each(peakParts));
  if (page.traces.some((t) => list(t.leaks.processes).length)) section("leaks", "Leaks", each(leakCards));
  section("recording", "The recording", notes(), each(recording));
  document.getElementById("main").append(leftOut(page.traces_left_out, "traces"));
  document.getElementById("foot").append("Made by " + page.tool + " report. This file loads nothing; every number is exact, and what a list leaves out is summed up in its last row or counted.");
}

main();
