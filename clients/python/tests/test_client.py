"""Against a real server, which the repository's own tests start: ECLUSA_URL, ECLUSA_KEY, CALLBACK_SECRET."""

import base64
import hmac
import http.client
import http.server
import json
import os
import re
import socket
import threading
import time
import unittest
import urllib.parse
import uuid
from contextlib import contextmanager

import eclusa
from eclusa import Eclusa, verify_webhook

URL = os.environ["ECLUSA_URL"]
SECRET = os.environ["CALLBACK_SECRET"]
REQUEST = {"path": "/a", "body": {"prompt": "a lock"}}


class Handler(http.server.BaseHTTPRequestHandler):
    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.answer(self, body)

    do_GET = do_POST = do_DELETE = handle_any

    def log_message(self, *args):
        pass


@contextmanager
def listen(answer):
    """A server on this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answer = answer
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def flaky(*faults):
    """Something between client and server that goes through ``faults``, one a request, before it only passes requests on."""
    faults, seen = list(faults), []

    def answer(incoming, body):
        seen.append(incoming.headers)
        fault = faults.pop(0) if faults else None
        if fault == "busy":
            problem = {"type": "urn:eclusa:problem:queue-full", "title": "Full", "status": 503, "detail": "later"}
            return reply(incoming, 503, json.dumps(problem).encode(), {"Retry-After": "0"})
        real = http.client.HTTPConnection(urllib.parse.urlsplit(URL).netloc, timeout=30)
        headers = {name: value for name, value in incoming.headers.items() if name != "Host"}
        real.request(incoming.command, incoming.path, body or None, headers)
        passed = real.getresponse()
        text = passed.read()
        real.close()
        if fault == "drop":
            # The server has acted on the request, but the client does not know.
            return incoming.connection.shutdown(socket.SHUT_RDWR)
        if fault == "cut":
            first = text[: text.index(b"\n\n") + 2]
            return reply(incoming, 200, first, {"Content-Length": str(len(text))})
        reply(incoming, passed.status, text, {})

    with listen(answer) as url:
        yield url, seen


def reply(incoming, status, body, headers):
    incoming.send_response(status)
    for name, value in headers.items():
        incoming.send_header(name, value)
    incoming.end_headers()
    incoming.wfile.write(body)


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.client = Eclusa()

    def test_a_job_is_enqueued_waited_for_and_fetched(self):
        accepted = self.client.enqueue("work", {"request": REQUEST, "tenant": "acme", "priority": "high"})
        job = self.client.wait(accepted["jobId"])
        self.assertEqual(job["status"], "completed")
        self.assertEqual((job["tenant"], job["priority"], job["result"]["status"]), ("acme", "high", 200))
        self.assertEqual(self.client.get(accepted["jobId"])["jobId"], accepted["jobId"])
        found = self.client.search(lane="work", id=accepted["jobId"])
        self.assertEqual([one["jobId"] for one in found["jobs"]], [accepted["jobId"]])

    def test_a_job_is_run_to_its_end_in_one_call(self):
        self.assertEqual(self.client.run("work", {"request": REQUEST})["status"], "completed")

    def test_the_same_id_is_the_same_job_and_another_payload_is_refused(self):
        id = str(uuid.uuid4())
        first = self.client.enqueue("held", {"id": id, "request": REQUEST})
        second = self.client.enqueue("held", {"id": id, "request": REQUEST})
        self.assertEqual(first["jobId"], second["jobId"])
        with self.assertRaises(eclusa.InvalidError) as raised:
            self.client.enqueue("held", {"id": id, "request": {"path": "/other"}})
        self.assertEqual(raised.exception.type, "urn:eclusa:problem:idempotency-conflict")

    def test_a_request_whose_response_was_lost_is_repeated_with_the_same_key(self):
        with flaky("drop", "busy") as (url, seen):
            accepted = Eclusa(url).enqueue("held", {"request": REQUEST})
        keys = [headers["Idempotency-Key"] for headers in seen]
        self.assertEqual(len(keys), 3)
        self.assertTrue(keys[0])
        self.assertEqual(set(keys), {keys[0]})
        found = self.client.search(lane="held", id=keys[0])
        self.assertEqual([job["jobId"] for job in found["jobs"]], [accepted["jobId"]])

    def test_retries_are_limited(self):
        with flaky(*["busy"] * 10) as (url, seen):
            with self.assertRaises(eclusa.UnavailableError):
                Eclusa(url, retries=2).enqueue("held", {"request": REQUEST})
        self.assertEqual(len(seen), 3)
        with self.assertRaises(eclusa.TransportError):
            Eclusa(url, retries=1).enqueue("held", {"request": REQUEST})

    def test_a_batch_has_a_result_for_each_job(self):
        answers = self.client.enqueue_batch("work", [{"request": REQUEST}, {"request": {"path": "/../x"}}])
        self.assertEqual(self.client.wait(answers[0]["jobId"])["status"], "completed")
        self.assertEqual(answers[1]["type"], "urn:eclusa:problem:invalid")

    def test_a_wait_that_times_out_reports_the_state_of_the_job(self):
        job = self.client.enqueue("held", {"request": REQUEST})["jobId"]
        with self.assertRaises(eclusa.WaitTimeoutError) as raised:
            self.client.wait(job, timeout=0.05)
        self.assertEqual(raised.exception.job["status"], "queued")
        why = self.client.why(job)
        self.assertEqual((why["status"], why["reason"]), ("queued", "paused"))
        self.assertEqual(self.client.cancel(job)["status"], "cancelled")
        with self.assertRaises(eclusa.ConflictError):
            self.client.cancel(job)

    def test_events_are_followed_to_the_end_across_a_broken_stream(self):
        job = self.client.enqueue("work", {"request": REQUEST})["jobId"]
        self.client.wait(job)
        names = [(event.id, event.data["event"]) for event in self.client.events(job)]
        self.assertEqual(names, [(1, "accepted"), (2, "started"), (3, "completed")])
        with flaky("cut") as (url, seen):
            again = list(Eclusa(url).events(job))
        self.assertEqual([event.id for event in again], [1, 2, 3])
        self.assertEqual(again[-1].data["job"]["status"], "completed")
        self.assertEqual(seen[1]["Last-Event-ID"], "1")
        self.assertEqual(list(self.client.events(job, last_event_id=3)), [])

    def test_a_dead_letter_is_replayed(self):
        letters = self.client.dead_letters
        job = self.client.enqueue("broken", {"request": REQUEST})["jobId"]
        self.assertEqual(self.client.wait(job)["status"], "failed")
        self.assertIn(job, [letter["jobId"] for letter in letters.list(lane="broken", code="5xx")["deadLetters"]])
        self.assertEqual(letters.get(job)["lastFailureCode"], "500")
        accepted = letters.replay(job)
        self.assertEqual(self.client.wait(accepted["jobId"])["status"], "failed")
        edited = letters.replay(job, {"request": {"path": "/edited"}})
        self.assertEqual(self.client.wait(edited["jobId"])["request"]["path"], "/edited")
        replay = letters.replay_all({"lane": "broken", "tenant": "nobody"})["replayId"]
        self.assertEqual(letters.replayed(replay)["replayId"], replay)
        letters.discard(job)
        with self.assertRaises(eclusa.NotFoundError):
            letters.get(job)

    def failed_job(self):
        """A job that has become a dead letter."""
        job = self.client.enqueue("broken", {"request": REQUEST})["jobId"]
        self.client.wait(job)
        return job

    def test_a_replay_whose_response_was_lost_is_not_repeated(self):
        job = self.failed_job()
        with flaky("busy", "drop") as (url, seen):
            with self.assertRaises(eclusa.TransportError):
                Eclusa(url).dead_letters.replay(job)
        self.assertEqual(len(seen), 2)

    def test_a_request_that_succeeded_with_its_response_lost_is_not_an_error(self):
        job, letter = self.client.enqueue("held", {"request": REQUEST})["jobId"], self.failed_job()
        with flaky("drop", None, None, "drop", None, None, "drop") as (url, seen):
            through = Eclusa(url)
            cancelled = through.cancel(job)
            self.assertEqual((cancelled["jobId"], cancelled["status"]), (job, "cancelled"))
            self.assertIsNone(through.dead_letters.discard(letter))
            with self.assertRaises(eclusa.NotFoundError):
                self.client.dead_letters.get(letter)
            through.acquire("limited").settle(200)
        self.assertEqual(len(seen), 8)

    def test_a_conflict_from_another_cause_is_an_error(self):
        job = self.client.enqueue("held", {"request": REQUEST})["jobId"]
        self.client.cancel(job)
        ended = self.client.run("work", {"request": REQUEST})["jobId"]
        with flaky("busy", None, "busy", None, "drop") as (url, _):
            through = Eclusa(url)
            with self.assertRaises(eclusa.ConflictError):
                through.cancel(job)
            with self.assertRaises(eclusa.NotFoundError):
                through.dead_letters.discard(str(uuid.uuid4()))
            with self.assertRaises(eclusa.ConflictError):
                through.cancel(ended)

    def test_calls_are_limited_and_settled(self):
        lease = self.client.acquire("limited")
        self.assertGreater(lease.remaining, 0)
        with self.assertRaises(eclusa.QuotaExceededError) as raised:
            self.client.acquire("limited")
        self.assertEqual(raised.exception.problem["reason"], "concurrency")
        self.assertGreater(raised.exception.retry_after, 0)
        lease.extend()
        lease.settle(200)
        following = self.client.acquire("limited", {"wait": "5s"})
        following.settle("not_sent")
        with self.assertRaises(eclusa.NotFoundError):
            following.settle(200)

    def test_invalid_fields_are_reported_in_the_error(self):
        with self.assertRaises(eclusa.InvalidError) as raised:
            self.client.enqueue("work", {"request": REQUEST, "priority": "urgent"})
        self.assertIn("high, normal, low", raised.exception.problem["errors"][0]["problem"])
        with self.assertRaises(eclusa.NotFoundError):
            self.client.get(str(uuid.uuid4()))
        with self.assertRaises(eclusa.UnauthorizedError):
            Eclusa(key="wrong").get("x")
        self.assertIn("work", [lane["name"] for lane in self.client.call("GET", "/v1/lanes")])

    def test_a_response_that_is_not_the_servers_is_an_error_of_this_client(self):
        following = []
        with listen(lambda incoming, _: reply(incoming, *following.pop())) as url:
            other = Eclusa(url, retries=0)
            wrong = '{"type":"x","title":"X","status":"?","detail":"x"}'
            for body in ['{"type":"x"}', wrong, "null", "[]", "<html>"]:
                following.append((502, body.encode(), {"Content-Type": "application/json"}))
                expected = re.escape(f"502 Unexpected response: {body}")
                with self.subTest(body), self.assertRaisesRegex(eclusa.ProblemError, expected):
                    other.get("x")
            for type in ["text/html", "application/json"]:
                following.append((200, b"<html>\xff", {"Content-Type": type}))
                with self.subTest(type), self.assertRaisesRegex(eclusa.TransportError, "<html>"):
                    other.get("x")

    def test_any_call_may_return_text(self):
        self.assertIn("# HELP eclusa_", self.client.call("GET", "/metrics"))


class WebhookTest(unittest.TestCase):
    def test_a_callback_is_verified(self):
        heard, done = [], threading.Event()

        def answer(incoming, body):
            heard.append((dict(incoming.headers.items()), body))
            reply(incoming, 200, b"", {})
            done.set()

        with listen(answer) as url:
            job = Eclusa().enqueue("work", {"request": REQUEST, "callbackUrl": f"{url}/done"})["jobId"]
            self.assertTrue(done.wait(30))
        headers, body = heard[0]
        callback = verify_webhook(SECRET, headers, body)
        self.assertEqual((callback["jobId"], callback["status"]), (job, "completed"))
        without = {name: value for name, value in headers.items() if name.lower() != "webhook-id"}
        for secret, changed, other, now in [
            (SECRET, headers, body.replace(b"completed", b"failed"), None),
            ("another-0123456789abcdef", headers, body, None),
            (SECRET, headers, body, time.time() + 301),
            (SECRET, without, body, None),
        ]:
            with self.assertRaises(eclusa.WebhookVerificationError):
                verify_webhook(secret, changed, other, now=now)

    def test_the_example_of_standard_webhooks_is_verified(self):
        headers = {
            "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "Webhook-Timestamp": "1614265330",
            "Webhook-Signature": "v2,x v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        }
        secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        self.assertEqual(verify_webhook(secret, headers, '{"test": 2432232314}', now=1614265330)["test"], 2432232314)

    def test_a_secret_that_the_server_would_not_accept_is_refused(self):
        for wrong, key in [
            ("", b""),
            (None, b""),
            ("short-012345678", b"short-012345678"),
            ("whsec_", b""),
            ("whsec_?????????????", b""),
            ("whsec_c2VjcmV0LTAxMjM", b"secret-0123"),
            ("whsec_é23456789012345", b""),
        ]:
            signature = base64.b64encode(hmac.new(key, b"m.1614265330.{}", "sha256").digest()).decode()
            headers = {
                "webhook-id": "m",
                "webhook-timestamp": "1614265330",
                "webhook-signature": f"v1,{signature}",
            }
            with self.subTest(wrong), self.assertRaisesRegex(eclusa.WebhookVerificationError, "^the secret "):
                verify_webhook(wrong, headers, "{}", now=1614265330)


if __name__ == "__main__":
    unittest.main()
