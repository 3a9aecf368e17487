"""An API to try the recipes on: python3 docs/how-to/stand-in.py PORT

Answers everything with the number of the call. `?sleep=2` makes it slow, `?status=503` makes it fail.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, urlsplit

port = int(sys.argv[1])
calls = count(1)


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        call, url = next(calls), urlsplit(self.path)
        query = parse_qs(url.query)
        self.rfile.read(int(self.headers.get("content-length", 0)))
        time.sleep(float(query.get("sleep", ["0"])[0]))
        body = json.dumps({"call": call, "path": url.path, "port": port}).encode() + b"\n"
        self.send_response(int(query.get("status", ["200"])[0]))
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = answer


ThreadingHTTPServer(("127.0.0.1", port), Api).serve_forever()
