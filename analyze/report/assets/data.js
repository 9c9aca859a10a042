// The page's data: integers are text in it, and become BigInt here.

const page = JSON.parse(document.getElementById("data").textContent);

const big = (s) => BigInt(s || "0");
const split = (s) => (s === "" ? [] : s.split(" "));
const bigs = (s) => split(s).map(BigInt);
const indexes = (s) => split(s).map(Number);

// nodes are the lines of all views: each below its parent, which stands before
// it.
const nodes = { parent: [-1, ...indexes(page.nodes.parents)], label: [-1, ...indexes(page.nodes.names)] };
const nameOf = (node) => (node === 0 ? "all" : page.nodes.labels[nodes.label[node]]);
const kindOf = (node) => (node === 0 ? "root" : page.nodes.kinds[nodes.label[node]]);

// tree adds a view's own bytes up: what a line holds in all it called.
function tree(view, curve) {
  const at = indexes(view.flame.nodes), own = bigs(view.flame[curve]);
  const sum = new Map(), children = new Map();
  at.forEach((node, i) => {
    for (let n = node; n >= 0; n = nodes.parent[n]) sum.set(n, (sum.get(n) || 0n) + own[i]);
  });
  for (const [n, bytes] of sum) {
    if (n === 0 || bytes === 0n) continue;
    const up = nodes.parent[n];
    if (!children.has(up)) children.set(up, []);
    children.get(up).push(n);
  }
  for (const list of children.values()) list.sort((a, b) => (sum.get(b) > sum.get(a) ? 1 : sum.get(b) < sum.get(a) ? -1 : a - b));
  return { sum, children, total: sum.get(0) || 0n };
}

const deviceName = (d) => (d === undefined || Number(d) < 0 ? "device unknown" : "device " + d);
const several = page.traces.length > 1;
const traceName = (i) => (i < 0 ? "all traces" : page.traces[i].path.replace(/\/+$/, "").replace(/^.*\//, ""));
