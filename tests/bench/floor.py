"""The least an agent can be: a Python that answers `initialize` and `session/new` and does nothing else.

Its numbers are the machine's and the interpreter's; what is above them is ours.
"""

import json
import sys

RESULTS = {"initialize": {"protocolVersion": 1}, "session/new": {"sessionId": "floor"}, "authenticate": {}}

for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": RESULTS[message["method"]]}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
