"""Calls an API under limits that all workers share: python3 foreign-worker.py UPSTREAM URL [CALLS]

ECLUSA_URL says where Eclusa is; ECLUSA_KEY is a key of role producer, if it wants one.
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
    """Makes the call itself; what there is to tell of it."""
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
    """One call, if there is leave for it within five seconds."""
    status, headers, leave = ask(f"/v1/limits/{upstream}/acquire", {"wait": "5s"})
    if status == 429:
        return f"not now ({leave['reason']}), again in {headers['retry-after']} s"
    if status != 200:
        raise SystemExit(leave["detail"])
    told = fetch(url)
    ask(f"/v1/limits/leases/{leave['leaseId']}/settle", told)
    return f"{told['status']}, {leave['remaining']} left"


upstream, url, *calls = sys.argv[1:]
for _ in range(int(calls[0]) if calls else 1):
    print(call(upstream, url), flush=True)
