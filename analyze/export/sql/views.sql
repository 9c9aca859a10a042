-- The answers as views. Rows are numbered in the order of effect; a peak is
-- looked for in that order and not by time, which may repeat or step back.

-- Live bytes of each device after each event that changed them.
CREATE VIEW device_live AS
WITH changes AS (
  SELECT trace, device, begin_row AS "row", begin_ns AS time_ns, used, acquired, blocks FROM allocations
  UNION ALL
  SELECT trace, device, end_row, end_ns, -used, -acquired, -blocks FROM allocations WHERE end_row >= 0
), steps AS (
  SELECT trace, device, "row", any_value(time_ns) AS time_ns, sum(used) AS used, sum(acquired) AS acquired, sum(blocks) AS blocks
  FROM changes GROUP BY trace, device, "row"
)
SELECT trace, device, "row", time_ns,
  (sum(used) OVER running)::BIGINT AS used,
  (sum(acquired) OVER running)::BIGINT AS acquired,
  (sum(blocks) OVER running)::BIGINT AS blocks
FROM steps WINDOW running AS (PARTITION BY trace, device ORDER BY "row");

-- gpuanalyze peak: when each device's used bytes were highest, the first time;
-- of a device on which nothing was used, its acquired bytes.
CREATE VIEW peaks AS
SELECT * FROM device_live WHERE used > 0 OR acquired > 0
QUALIFY row_number() OVER (
  PARTITION BY trace, device
  ORDER BY used DESC, CASE WHEN used = 0 THEN acquired END DESC, "row"
) = 1;

-- gpuanalyze peak --by line: what was live then.
CREATE VIEW peak_by_line AS
SELECT trace, device, p.time_ns, a.site, a.own_site,
  sum(a.used)::BIGINT AS used, sum(a.acquired)::BIGINT AS acquired, sum(a.blocks)::BIGINT AS blocks
FROM peaks p JOIN allocations a USING (trace, device)
WHERE a.begin_row <= p."row" AND (a.end_row < 0 OR a.end_row > p."row") AND (a.used > 0 OR a.acquired > 0)
GROUP BY ALL ORDER BY trace, device, used DESC, acquired DESC, site;

-- gpuanalyze lines --at TIME: the allocations that were live after the last
-- event up to t nanoseconds since the start. SELECT * FROM live_at(5000000000)
CREATE MACRO live_at(t) AS TABLE
WITH later AS (
  SELECT trace, min("row") AS cut FROM events WHERE time_ns > t AND kind <> 'Live' GROUP BY trace
)
SELECT a.* FROM allocations a LEFT JOIN later USING (trace)
WHERE (cut IS NULL OR a.begin_row < cut) AND (a.end_row < 0 OR a.end_row >= cut);

-- gpuanalyze lines --at end: what a process did not give back.
CREATE VIEW live_at_end AS
SELECT * FROM allocations WHERE end_row < 0 OR ended_by = 'ProcessEnd';

-- gpuanalyze lines: all that was ever asked for, failed attempts included.
CREATE VIEW total_by_line AS
WITH attempts AS (
  SELECT e.trace, e.stack, e.file, e.line, e.function, e.layer, p.used_layer,
    CASE WHEN e.size > 0 OR e.kind = 'Alloc' THEN greatest(e.size, 0) ELSE greatest(e.requested, 0) END AS bytes
  FROM events e LEFT JOIN processes p USING (trace, process)
  WHERE e.kind IN ('Alloc', 'AllocFailed') AND e.class = 'device' AND e.api <> 'cupy.alloc'
    AND NOT regexp_matches(e.flags, '(^|\|)(captured|nested|echo)(\||$)')
)
SELECT trace, stack, file, line, function,
  (coalesce(sum(bytes) FILTER (WHERE layer = coalesce(used_layer, 'driver')), 0))::BIGINT AS used,
  (coalesce(sum(bytes) FILTER (WHERE layer = 'driver'), 0))::BIGINT AS acquired,
  count(*) AS attempts
FROM attempts WHERE layer IN ('driver', 'pool') GROUP BY ALL ORDER BY used DESC, acquired DESC;

-- gpuanalyze contexts, by each of its curves.
CREATE VIEW delta_by_context AS
SELECT trace, scope, parent, path, name, pid, thread, begin_ns, end_ns, open,
  used_delta AS delta_used, used_peaked AS delta_peaked,
  acquired_delta AS delta_acquired, acquired_peaked AS delta_acquired_peaked,
  CASE WHEN nvml_max >= 0 THEN nvml_end - nvml_begin END AS delta_nvml,
  CASE WHEN nvml_max >= 0 THEN nvml_max - greatest(nvml_begin, nvml_end) END AS delta_nvml_peaked
FROM scopes ORDER BY trace, begin_ns, scope;

-- gpuanalyze devices: which device had most free memory when, the lower index
-- at a tie; of a trace without samples, total less acquired.
CREATE VIEW device_history AS
WITH readings AS (
  SELECT trace, device, time_ns, free, row_number() OVER () AS n FROM samples WHERE process = 0 AND device >= 0
), steps AS (
  FROM readings
  UNION ALL BY NAME
  SELECT trace, device, 0 AS time_ns, total AS free, -1 AS n FROM devices
  WHERE total > 0 AND trace NOT IN (SELECT trace FROM readings)
  UNION ALL BY NAME
  SELECT trace, device, time_ns, total - acquired AS free, "row" AS n FROM device_live JOIN devices USING (trace, device)
  WHERE total > 0 AND trace NOT IN (SELECT trace FROM readings)
), known AS ( -- a step function has no way back
  SELECT trace, device, max(time_ns) OVER (PARTITION BY trace ORDER BY n) AS time_ns, n, free FROM steps
), at_moment AS (
  SELECT trace, device, time_ns, arg_max(free, n) AS free FROM known GROUP BY trace, device, time_ns
), grid AS (
  SELECT m.trace, m.time_ns, d.device FROM (SELECT DISTINCT trace, time_ns FROM at_moment) m
  JOIN (SELECT DISTINCT trace, device FROM at_moment) d USING (trace)
), filled AS (
  SELECT g.trace, g.time_ns, g.device, a.free FROM grid g ASOF JOIN at_moment a
  ON g.trace = a.trace AND g.device = a.device AND g.time_ns >= a.time_ns
), freest AS (
  SELECT trace, time_ns, device, free FROM filled WHERE free >= 0
  QUALIFY row_number() OVER (PARTITION BY trace, time_ns ORDER BY free DESC, device) = 1
), marked AS (
  SELECT *, (device IS DISTINCT FROM lag(device) OVER (PARTITION BY trace ORDER BY time_ns))::INT AS begins FROM freest
), runs AS (
  SELECT *, sum(begins) OVER (PARTITION BY trace ORDER BY time_ns) AS run FROM marked
), bounds AS (
  SELECT trace, run, min(time_ns) AS from_ns, any_value(device) AS device,
    arg_min(free, time_ns) AS free_at_start, min(free) AS free_min, max(free) AS free_max
  FROM runs GROUP BY trace, run
)
SELECT b.trace, from_ns, coalesce(lead(from_ns) OVER (PARTITION BY b.trace ORDER BY from_ns), greatest(t.end_ns, from_ns)) AS to_ns,
  device, free_at_start, free_min, free_max
FROM bounds b JOIN traces t ON t.trace = b.trace ORDER BY b.trace, from_ns;

-- gpuanalyze oom: what programs were told, and what a retry hid from them.
CREATE VIEW oom AS
SELECT * FROM failures ORDER BY trace, time_ns;
