// The sections that are tables and cards.

const list = (v) => v || [];

// withRest adds a row for what is in the sums and in none of the rows.
function withRest(rows, name, sums) {
  const rest = { name: "[" + name + "]", rest: true, blocks: null, oldest: null, newest: null };
  for (const [k, sum] of Object.entries(sums)) rest[k] = sum - rows.reduce((n, r) => n + r[k], 0n);
  return rest.bytes > 0n ? [...rows, rest] : rows;
}

const leftOut = (n, what) => (Number(n) > 0 ? el("p", { class: "dim" }, grouped(BigInt(n)) + " more " + what + " left out.") : "");

// byteBar is parts of a whole side by side, and their legend is the table below.
function byteBar(parts, whole, words) {
  const bar = el("div", { class: "stack", role: "img", "aria-label": words });
  for (const p of parts) {
    if (p.bytes <= 0n) continue;
    const i = el("i", { class: p.colour, title: p.name + ": " + human(p.bytes) });
    i.style.width = Number((p.bytes * 10000n) / (whole > 0n ? whole : 1n)) / 100 + "%";
    bar.append(i);
  }
  return bar;
}

// within is a line of the program's own, and which line of a package took the
// memory for it.
const within = (h) => h.line + (h.in ? " (in " + h.in + ")" : "");

function oomCards(t) {
  const out = [...list(t.oom.failures).map((f) => oomCard(f)), leftOut(t.oom.failures_left_out, "failures")];
  if (t.oom_text.length) out.push(el("details", {}, el("summary", {}, "the page of gpuanalyze oom, as text"), el("pre", {}, t.oom_text.join("\n"))));
  const retried = list(t.oom.retried);
  if (retried.length) {
    out.push(el("h3", {}, "Refused by the driver, and a retry worked"), el("p", { class: "dim" }, "The program never knew of these."),
      table([{ key: "name", title: "line", kind: "text" }, { key: "count", title: "times", kind: "count" }, { key: "largest", title: "largest", kind: "bytes" }, { key: "freed", title: "given back for it", kind: "bytes" }, { key: "first", title: "first at", kind: "time" }],
        retried.map((r) => ({ name: within(r), count: big(r.count), largest: big(r.largest), freed: big(r.freed), first: big(r.first_ns) })), { caption: "retried" }), leftOut(t.oom.retried_left_out, "lines"));
  }
  return out;
}

function oomCard(f) {
  const asked = big(f.asked), m = f.memory;
  const card = el("article", { class: "card bad" }, el("h3", {}, f.causes[0].title),
    facts(["when", seconds(big(f.at_ns)) + (big(f.count) > 1n ? ", the latest of " + grouped(big(f.count)) : "")],
      ["where", deviceName(f.device) + (f.device_name ? " (" + f.device_name + ")" : "")],
      ["asked for", ...bytes(asked), ", reported by " + f.reporter + (big(f.refusals) > 0n ? "; the driver refused " + plural(big(f.refusals), "time") : "; the driver was not asked")],
      ["by", el("code", {}, f.line)], f.in && ["in", el("code", {}, f.in)],
      ...list(f.called_by).map((l) => ["called by", el("code", {}, l)]),
      list(f.scope).length && ["inside", f.scope.join(" › ") + (f.scope_inferred ? " (inferred)" : "")],
      ["process", f.pid + (f.rank !== undefined ? ", rank " + f.rank : "") + ", " + f.command], ["outcome", f.outcome + " (inferred)"]));
  card.append(el("h3", {}, "Why"), el("ol", { class: "plain" }, f.causes.map((c) => el("li", {}, el("b", {}, c.cause), ": " + c.why))));
  if (list(f.remedies).length) card.append(el("h3", {}, "What to do"), el("ul", { class: "plain" }, f.remedies.map((r) => el("li", {}, r))));
  card.append(el("h3", {}, "Where the device's memory was"), ...memoryBar(m, f));
  if (list(f.holders).length) {
    card.append(el("h3", {}, "Who held the live memory"), table([{ key: "name", title: "line", kind: "text" }, { key: "bytes", title: "bytes", kind: "bytes", bar: true }, { key: "blocks", title: "blocks", kind: "count" }],
      withRest(f.holders.map((h) => ({ name: within(h), bytes: big(h.bytes), blocks: big(h.blocks) })), "other lines", { bytes: big(m.used) }), { caption: "holders" }));
    if (f.wrapper) card.append(el("p", { class: "dim" }, "Nearly all has one line: a report with ", el("code", {}, "--hide '" + f.wrapper.replaceAll("'", "'\\''") + "'"), " shows who called it."));
  }
  if (f.growth && list(f.growth.lines).length) {
    card.append(el("h3", {}, "What grew before it"), table([{ key: "name", title: "line", kind: "text" }, { key: "bytes", title: "grew by", kind: "bytes", bar: true }, { key: "rises", title: "rose at", kind: "text", plain: true }],
      f.growth.lines.map((g) => ({ name: within(g), bytes: big(g.bytes), rises: g.rises + " of " + g.intervals + " looks" })), { caption: "growth" }));
  }
  card.append(el("p", { class: "dim" }, "All that was live then: ", el("code", {}, f.live_then)));
  return card;
}

// memoryBar shares out what programs can have of a device. What NVML did not
// say is not drawn.
function memoryBar(m, f) {
  const n = (k) => big(m[k]);
  const pool = m.used_layer === "pool";
  const parts = [
    { name: pool ? "live" : "live (driver layer)", bytes: n("used"), colour: "part0" },
    { name: "cached and free in the pool", bytes: pool ? n("cached") : 0n, colour: "part1" },
    { name: "acquired outside the pool", bytes: pool ? n("outside_pool") : 0n, colour: "part2" },
    { name: "CUcontext and what is not recorded", bytes: n("untracked"), colour: "part3" },
    { name: "other processes and the driver", bytes: n("others"), colour: "part4" },
    { name: "free", bytes: n("free"), colour: "free" },
  ].filter((p) => p.bytes > 0n);
  const total = n("total");
  const rows = parts.map((p) => ({ ...p, share: percent(p.bytes, total) }));
  const out = total > 0n ? [byteBar(parts, total, "memory of " + deviceName(f.device))] : [];
  out.push(partTable(rows, "share of " + (total > 0n ? human(total) : "it"), "memory at the failure"));
  if (pool && n("cached") > 0n) out.push(el("p", { class: "dim" }, "The largest free piece of the pool had " + human(n("largest_hole")) + " (" + grouped(n("largest_hole")) + ") at most; " + human(n("cached_pinned")) + " lay in segments that a block kept."));
  return out;
}

function partTable(rows, share, caption) {
  const body = el("tbody", {}, rows.map((p) => el("tr", {}, el("td", {}, el("i", { class: "swatch " + p.colour }), p.name),
    el("td", { class: "n" }, human(p.bytes), el("small", {}, grouped(p.bytes))), el("td", { class: "n" }, p.share), el("td", { class: "dim" }, p.note || ""))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "part"), el("th", { class: "n" }, "bytes"), el("th", { class: "n" }, share), el("th", {}, ""))), body));
}

function peakParts(t) {
  return t.peaks.flatMap((p) => {
    const info = p.info, parts = info.parts;
    const out = [el("h3", {}, deviceName(p.device) + (info.name ? " · " + info.name : "")),
      el("p", {}, "Peak of ", ...bytes(big(info.used)), " used at " + seconds(big(info.at_ns)) + ", in " + plural(big(info.blocks), "block") + "; acquired then ", ...bytes(big(info.acquired)), ".")];
    for (const s of list(info.open_scopes)) out.push(el("p", {}, "Open then: ", el("b", {}, s.path.join(" › ") + "#" + s.n), " (pid " + s.pid + ", thread " + s.thread + ")"));
    if (!parts) return [...out, el("p", { class: "dim" }, "No parts: there is no NVML reading that fits, or the answers are limited to less than the device.")];
    const sum = big(parts.sum);
    const rows = list(parts.parts).map((q, i) => ({ name: q.part + (q.pid !== undefined ? " of pid " + q.pid : ""), bytes: big(q.bytes), colour: "part" + (i % 8), note: q.inferred ? "inferred" : "" }));
    out.push(el("p", { class: "dim" }, "NVML read " + human(big(parts.nvml_used)) + " (" + grouped(big(parts.nvml_used)) + ") as used at " + seconds(big(parts.reading_ns)) + ". The parts add up to " + human(sum) + " (" + grouped(sum) + ")."),
      byteBar(rows, sum, "parts of the peak"), partTable(rows.filter((r) => r.bytes !== 0n).map((r) => ({ ...r, share: percent(r.bytes, sum) })), "share", "parts of the peak"));
    for (const n of list(parts.notes)) out.push(el("p", { class: "dim" }, n));
    return out;
  });
}

const groupings = { "own-line": "own line", line: "line", function: "function", scope: "context", size: "size of allocation", process: "process" };

// lineTables shows one table at a time: what was live at a peak by one of the
// groupings, or all that was ever taken.
function lineTables() {
  const choices = page.traces.flatMap((t, i) => t.peaks.map((p) => ({ name: "at the peak of " + (several ? traceName(i) + ", " : "") + deviceName(p.device), peak: p })));
  choices.push({ name: "all that was ever taken" + (several ? ", of all traces" : ""), rows: page.totals });
  const place = el("div");
  const what = el("select", { "aria-label": "lines of what", change: () => fill() }, choices.map((c, i) => el("option", { value: i }, c.name)));
  const by = el("select", { "aria-label": "rows by", change: () => fill() }, Object.entries(groupings).map(([k, w]) => el("option", { value: k }, "by " + w)));
  function fill() {
    const c = choices[Number(what.value)];
    by.disabled = !c.peak;
    const rows = (c.peak ? list(c.peak.tables[by.value]) : page.totals).map((r) => ({ name: r.name, used: big(r.used), acquired: big(r.acquired), blocks: big(r.blocks), on: r.rest ? null : big(r.on_stack), rest: r.rest }));
    const columns = [{ key: "name", title: c.peak ? groupings[by.value] : "line", kind: "text" }, { key: "used", title: "used", kind: "bytes", bar: true }, { key: "acquired", title: "acquired", kind: "bytes" }];
    if (c.peak) columns.push({ key: "blocks", title: "blocks", kind: "count" });
    if (c.peak && ["line", "own-line", "function"].includes(by.value)) columns.splice(2, 0, { key: "on", title: "used, with callees", kind: "bytes", hint: "what was taken there or in what it called: a byte stands in several rows" });
    place.replaceChildren(table(columns, rows, { sort: "used", filter: true, caption: "lines" }));
  }
  fill();
  return el("div", {}, el("div", { class: "controls" }, what, by), place);
}

function contextTables(t) {
  if (!t.names.length) return [];
  const value = (s, k) => (s.known && s.known !== "0" ? big(s[k]) : null);
  const byName = table([{ key: "name", title: "context", kind: "text" }, { key: "count", title: "count", kind: "count" }, { key: "used", title: "used, sum", kind: "bytes", hint: "at the end less at the begin" },
    { key: "peaked", title: "peaked, most", kind: "bytes", bar: true, hint: "the most in it, beyond the higher of begin and end" }, { key: "max", title: "max", kind: "bytes" }],
  t.names.map((n) => ({ name: n.name, depth: n.depth, count: big(n.count), used: value(n, "used"), peaked: value(n, "peaked") ?? 0n, max: value(n, "max") })), { filter: true, caption: "contexts by name" });
  const one = table([{ key: "name", title: "context", kind: "text" }, { key: "begin", title: "begin", kind: "time" }, { key: "took", title: "took", kind: "span" }, { key: "used", title: "used", kind: "bytes" },
    { key: "peaked", title: "peaked", kind: "bytes", bar: true }, { key: "max", title: "max", kind: "bytes" }],
  t.contexts.map((s) => ({ name: s.name + "#" + s.n + (s.open ? " (open)" : ""), begin: big(s.begin), took: big(s.end) - big(s.begin), used: value(s, "used"), peaked: value(s, "peaked") ?? 0n, max: value(s, "max") })), { sort: "peaked", filter: true, caption: "single contexts" });
  return [byName, leftOut(t.names_left_out, "names"), el("h3", {}, "Single contexts" + (t.contexts_left_out ? ": the " + t.contexts.length + " that peaked highest, " + grouped(BigInt(t.contexts_left_out)) + " more left out" : "")), one];
}

function deviceTables(t) {
  const d = t.devices, out = [];
  const rows = list(d.devices).flatMap((v) => ["free", "used", "reserved", "acquired"].filter((k) => v[k]).map((k) => ({
    name: deviceName(v.device), curve: k + (k === "acquired" ? " (" + (v.acquired_how || "exact") + ")" : " (NVML, sampled)"), min: big(v[k].min), mean: big(v[k].mean), max: big(v[k].max), at: big(v[k].max_at_ns) })));
  out.push(table([{ key: "name", title: "device", kind: "text", plain: true }, { key: "curve", title: "curve", kind: "text", plain: true }, { key: "min", title: "min", kind: "bytes" }, { key: "mean", title: "mean over time", kind: "bytes" }, { key: "max", title: "max", kind: "bytes" }, { key: "at", title: "max at", kind: "time" }],
    rows, { caption: "devices" }));
  const runs = list(d.runs);
  if (runs.length && list(d.devices).length > 1) {
    out.push(el("h3", {}, "Which device was freest" + (t.runs_left_out ? ": the longest times, " + grouped(BigInt(t.runs_left_out)) + " more left out" : "")),
      table([{ key: "from", title: "from", kind: "time" }, { key: "to", title: "to", kind: "time" }, { key: "name", title: "device", kind: "text", plain: true }, { key: "free", title: "free at the start", kind: "bytes" }, { key: "min", title: "least free", kind: "bytes" }, { key: "max", title: "most free", kind: "bytes" }],
        runs.map((r) => ({ from: big(r.from_ns), to: big(r.to_ns), name: deviceName(r.device), free: big(r.free_at_start), min: big(r.free_min), max: big(r.free_max) })), { caption: "freest device" }));
  } else if (runs.length) {
    out.push(el("p", { class: "dim" }, "There is one device with free bytes to tell of, so it was the freest throughout."));
  } else {
    out.push(el("p", { class: "dim" }, "Nothing is known about free memory: there are no NVML samples and no device's total."));
  }
  return out;
}

function leakCards(t) {
  return [...list(t.leaks.processes).flatMap((p) => leakCard(p)), leftOut(t.leaks.processes_left_out, "processes")];
}

function leakCard(p) {
  const g = p.growth, unit = big(g.turns) > 0n ? "a turn" : "a second";
  const out = [el("h3", {}, "pid " + p.pid + (p.rank !== undefined ? " rank " + p.rank : "") + " · " + p.command)];
  if (g.unknown) out.push(el("p", {}, el("b", {}, "Growth unknown: "), g.unknown));
  else {
    const over = big(g.turns) > 0n ? plural(big(g.turns), "turn") + " of " + g.scope : plural(big(g.stretches), "stretch").replace("stretchs", "stretches") + " of " + span(big(g.stretch));
    const n = Number(p.growing_sites);
    out.push(el("p", {}, el("b", {}, n ? plural(BigInt(n), "site") + " hold more and more" : "No site holds more and more"), " of " + g.sites + " looked at, over " + over + (n ? " (inferred)." : ".")));
    if (g.few_turns) out.push(el("p", { class: "dim" }, "Not from turn to turn: " + g.few_turns + ": record more of them."));
    if (n) {
      out.push(table([{ key: "name", title: "line", kind: "text" }, { key: "slope", title: "rises, " + unit, kind: "bytes" }, { key: "rose", title: "rose in all", kind: "bytes", bar: true }, { key: "floor", title: "holds at least", kind: "bytes" }, { key: "parts", title: "rising in", kind: "text", plain: true }],
        g.growing.map((s) => ({ name: s.name, slope: BigInt(Math.round(Number(s.slope))), rose: big(s.rose), floor: big(s.floor), parts: s.rises + " of " + s.parts + " parts" })), { caption: "growing sites" }));
    }
  }
  const when = p.ended ? "just before the process ended" : "at the end of the trace or window";
  const sums = list(p.at_end.sums).map((s) => human(big(s.bytes)) + " (" + grouped(big(s.bytes)) + ") of class " + s.class + " at the " + s.layer + " layer");
  out.push(el("p", {}, el("b", {}, "Live at the end"), ", " + when + ": " + (sums.join("; ") || "nothing")));
  const total = (k) => list(p.at_end.sums).reduce((n, s) => n + big(s[k]), 0n);
  if (list(p.at_end.sites).length) {
    out.push(table([{ key: "name", title: "line", kind: "text" }, { key: "bytes", title: "bytes", kind: "bytes", bar: true }, { key: "blocks", title: "blocks", kind: "count" }, { key: "oldest", title: "taken from", kind: "time" }, { key: "newest", title: "to", kind: "time" }],
      withRest(p.at_end.sites.map((s) => ({ name: s.name, bytes: big(s.bytes), blocks: big(s.blocks), oldest: big(s.oldest_ns), newest: big(s.newest_ns) })), "smaller sites",
        { bytes: total("bytes"), blocks: total("blocks") }), { caption: "live at the end" }));
  }
  const q = p.temporaries;
  out.push(el("p", { class: "dim" }, "Temporaries: " + grouped(big(q.count)) + " of " + grouped(big(q.of)) + " allocations (" + percent(big(q.count), big(q.of)) + ") were given back almost at once."));
  return out;
}

// started is when the recording began; a twin that nobody dated has the year 1.
const started = (m) => (m.start && !m.start.startsWith("0001-") ? m.start : "");

function notes() {
  const n = list(page.completeness.notes);
  return n.length ? el("ul", { class: "plain" }, n.map((s) => el("li", {}, s))) : "";
}

function recording(t) {
  const s = t.summary, m = s.meta;
  return [facts(["trace", el("code", {}, t.path)], list(m.command).length && ["command", el("code", {}, m.command.join(" "))], m.host && ["host", m.host], started(m) && ["start", started(m)],
    ["ended", (m.ending || "unknown") + (m.status !== undefined && m.status !== null ? ", exit status " + m.status : "") + (m.reason ? ": " + m.reason : "")],
    m.driver && ["driver", m.driver + (m.nvml ? ", NVML " + m.nvml : "")], m.tool && ["recorded by", m.tool], ["events", grouped(big(s.events)) + ", lost " + grouped(big(s.lost))],
    ["samples", grouped(big(s.samples)) + (s.no_samples ? ": " + s.no_samples : "")]),
  table([{ key: "pid", title: "process", kind: "text", plain: true }, { key: "command", title: "command", kind: "text" }, { key: "used", title: "peak used", kind: "bytes", bar: true }, { key: "acquired", title: "peak acquired", kind: "bytes" }, { key: "live", title: "live at its end", kind: "bytes" }, { key: "failed", title: "failed", kind: "count" }, { key: "status", title: "status", kind: "text", plain: true }],
    list(s.processes).map((p) => ({ pid: p.pid + (p.rank !== undefined ? " rank " + p.rank : ""), command: p.command, used: big(p.peak_used.bytes), acquired: big(p.peak_acquired.bytes), live: big(p.live_at_end), failed: big(p.failed_allocations), status: p.status === undefined ? "–" : p.status })), { sort: "used", caption: "processes" }),
  leftOut(s.processes_left_out, "processes")];
}
