#!/usr/bin/env python3
"""Compares what two processes say that they have (marks of testdata/programs/peers.c)
with a plain fold over the trace's events, and with the trace's count of odd frees.

    peers.py EVENTS SUMMARY

EVENTS is `gpuanalyze events --json` of the trace, SUMMARY `gpuanalyze summary --json`.
Prints a row a process. Exit: 0 when none differs.
"""
import collections
import json
import sys

from entry import Live


def main():
    folds, steps, wrong = collections.defaultdict(Live), collections.Counter(), collections.Counter()
    with open(sys.argv[1]) as f:
        for e in map(json.loads, f):
            fold = folds[e["pid"]]
            if e["kind"] == "Mark" and e.get("name", "").startswith("live "):
                steps[e["pid"]] += 1
                wrong[e["pid"]] += fold.taken() != int(e["name"].split()[1])
            fold.apply(e)
    with open(sys.argv[2]) as f:
        trace = json.load(f)["traces"][0]
    odd = trace["unknown_frees"] + trace["lost_frees"]
    for pid, n in steps.items():
        print(f"{'differs' if wrong[pid] else 'ok':8}process {pid}: its own bytes at {n} steps, {wrong[pid]} differ")
    print(f"{'differs' if odd else 'ok':8}odd frees: {odd}")
    return odd > 0 or len(steps) != 2 or sum(wrong.values()) > 0


if __name__ == "__main__":
    sys.exit(main())
