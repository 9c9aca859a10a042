"""Reads go test -json and says what a person wants of it.

A line a package, everything that a failed test printed, what a test "ran on", and
each skip with its reason: a skip that nobody sees is read as a pass. Exits 1 when a test or a
package failed, or when nothing ran.
"""

import collections
import json
import sys

output = collections.defaultdict(list)
counts = collections.Counter()
failed = False
for line in sys.stdin:
    try:
        event = json.loads(line)
    except ValueError:
        print(line, end="", flush=True)  # the compiler's words
        continue
    action, package, test = event["Action"], event.get("Package", ""), event.get("Test")
    key = (package, test)
    if action in ("output", "build-output"):
        output[key if action == "output" else (event.get("ImportPath"), None)].append(event["Output"])
        continue
    if action == "build-fail":
        print("".join(output[(event.get("ImportPath"), None)]), end="", flush=True)
        failed = True
    if action not in ("pass", "fail", "skip"):
        continue
    text = "".join(output.pop(key, []))
    if test is None:
        if action == "fail":
            print(text, end="")
            failed = True
        words = {"pass": "ok", "fail": "FAIL", "skip": "no tests"}
        print("%-8s %s  %.1fs" % (words[action], package, event.get("Elapsed", 0)), flush=True)
        continue
    counts[action] += 1
    if action == "fail":
        print(text, end="", flush=True)
        failed = True
    elif action == "pass":
        print("".join("%s %s\n" % (test, line[line.index("ran on ") :]) for line in text.splitlines() if ": ran on " in line), end="", flush=True)
    elif action == "skip":
        # t.Skip prints its words last, before the line that says SKIP.
        words = [part.strip() for part in text.splitlines() if part.strip() and not part.strip().startswith(("=== ", "--- "))]
        print("skipped  %s %s: %s" % (package, test, words[-1] if words else "no reason given"), flush=True)
print("%d passed, %d failed, %d skipped" % (counts["pass"], counts["fail"], counts["skip"]))
sys.exit(1 if failed or not counts["pass"] else 0)
