"""Calls an API under limits that all workers share: python3 foreign-worker.py UPSTREAM URL [CALLS]

ECLUSA_URL is the address of Eclusa; ECLUSA_KEY is a key of role producer, if Eclusa has keys.
"""

import json
import os
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ECLUSA = os.environ.get("ECLUSA_URL", "http://127.0.0.1:8080")
KEY = os.environ.get("ECLUSA_KEY", "")


def ask(path, body):
    """Status, headers and JSON of Eclusa's answer."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    try:
        with urlopen(Request(ECLUSA + path, json.dumps(body).encode(), headers), timeout=70) as answer:
            return answer.status, answer.headers, json.load(answer)
    except HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.headers, json.load(refusal)


def fetch(url):
    """Makes the call and returns what to report."""
    try:
        with urlopen(url, timeout=8) as answer:
            answer.read()
            return {"status": answer.status}
    except HTTPError as answer:
        with answer:
            after = answer.headers.get("retry-after")
            return {"status": answer.code} | ({"retryAfter": after} if after else {})
    except OSError as error:
        late = isinstance(getattr(error, "reason", error), TimeoutError)
        return {"status": "timeout" if late else "connection_error"}


def call(upstream, url):
    """One call, if it is permitted within five seconds."""
    status, headers, permit = ask(f"/v1/limits/{upstream}/acquire", {"wait": "5s"})
    if status == 429:
        return f"not now ({permit['reason']}), again in {headers['retry-after']} s"
    if status != 200:
        raise SystemExit(permit["detail"])
    result = fetch(url)
    ask(f"/v1/limits/leases/{permit['leaseId']}/settle", result)
    return f"{result['status']}, {permit['remaining']} left"


upstream, url, *calls = sys.argv[1:]
for _ in range(int(calls[0]) if calls else 1):
    print(call(upstream, url), flush=True)
