// Against a real server, which the repository's own tests start: ECLUSA_URL, ECLUSA_KEY, CALLBACK_SECRET, and the built
// client at ECLUSA_CLIENT.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHmac, randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import http from "node:http";
import { test } from "node:test";

const eclusa = await import(process.env.ECLUSA_CLIENT);
const { Eclusa, verifyWebhook } = eclusa;
const { ECLUSA_URL: url, CALLBACK_SECRET: secret } = process.env;
const client = new Eclusa();
const request = { path: "/a", body: { prompt: "a lock" } };

/** A server on this machine until the end of the test; `close` ends it with its connections. */
async function listen(t, handler) {
  const server = http.createServer(handler).listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  t.after(close);
  return { url: `http://127.0.0.1:${server.address().port}`, close };
}

async function bodyOf(incoming) {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Something between client and server that goes through `faults`, one a request, before it only passes requests on. */
async function flaky(t, faults) {
  const seen = [];
  const server = await listen(t, async (incoming, answer) => {
    const body = await bodyOf(incoming);
    seen.push(incoming.headers);
    const fault = faults.shift();
    if (fault === "busy") {
      const problem = { type: "urn:eclusa:problem:queue-full", title: "Full", status: 503, detail: "later" };
      answer.writeHead(503, { "content-type": "application/problem+json", "retry-after": "0" });
      return answer.end(JSON.stringify(problem));
    }
    const passed = await fetch(url + incoming.url, {
      method: incoming.method,
      headers: { authorization: incoming.headers.authorization, ...pick(incoming.headers) },
      ...(body.length > 0 && { body }),
    });
    const text = await passed.text();
    // The server has acted on the request, but the client does not know.
    if (fault === "drop") return incoming.socket.destroy();
    if (fault === "half" || fault === "stall") {
      answer.writeHead(passed.status, { "content-type": "application/json", "content-length": text.length });
      // A stalled body never ends; half a body ends with the connection, after the client has the head.
      return answer.write(text.slice(0, 10), () => fault === "half" && incoming.socket.destroySoon());
    }
    if (fault === "cut") {
      answer.writeHead(200, { "content-type": "text/event-stream" });
      answer.write(text.slice(0, text.indexOf("\n\n") + 2));
      return setTimeout(() => incoming.socket.destroy(), 20);
    }
    answer.writeHead(passed.status, { "content-type": passed.headers.get("content-type") ?? "text/plain" });
    answer.end(text);
  });
  return { ...server, seen };
}

function pick(headers) {
  const names = ["content-type", "idempotency-key", "prefer", "last-event-id"];
  return Object.fromEntries(names.filter((name) => headers[name]).map((name) => [name, headers[name]]));
}

test("a job is enqueued, waited for and fetched", async () => {
  const accepted = await client.enqueue("work", { request, tenant: "acme", priority: "high" });
  const job = await client.wait(accepted.jobId);
  assert.equal(job.status, "completed");
  assert.deepEqual([job.tenant, job.priority, job.result.status], ["acme", "high", 200]);
  assert.equal((await client.get(accepted.jobId)).jobId, accepted.jobId);
  const found = await client.search({ lane: "work", id: accepted.jobId });
  assert.deepEqual(found.jobs.map((one) => one.jobId), [accepted.jobId]);
});

test("a job is run to its end in one call", async () => {
  const job = await client.run("work", { request });
  assert.equal(job.status, "completed");
});

test("the same id is the same job, and another payload is refused", async () => {
  const id = randomUUID();
  const first = await client.enqueue("held", { id, request });
  const second = await client.enqueue("held", { id, request });
  assert.equal(first.jobId, second.jobId);
  const other = client.enqueue("held", { id, request: { path: "/other" } });
  await assert.rejects(other, (error) => error.type === "urn:eclusa:problem:idempotency-conflict");
});

test("a request whose response was lost is repeated with the same key", async (t) => {
  const between = await flaky(t, ["drop", "busy"]);
  const through = new Eclusa({ url: between.url });
  const accepted = await through.enqueue("held", { request });
  const keys = between.seen.map((headers) => headers["idempotency-key"]);
  assert.equal(keys.length, 3);
  assert.ok(keys[0] && keys.every((key) => key === keys[0]));
  const found = await client.search({ lane: "held", id: keys[0] });
  assert.deepEqual(found.jobs.map((job) => job.jobId), [accepted.jobId]);
});

test("a response that breaks off or stalls counts as lost", { timeout: 10_000 }, async (t) => {
  const between = await flaky(t, ["half", "stall"]);
  const { jobId } = await new Eclusa({ url: between.url, timeout: 1000 }).enqueue("held", { request });
  assert.equal(between.seen.length, 3);
  const broken = await flaky(t, ["half", "stall"]);
  const once = new Eclusa({ url: broken.url, retries: 0 });
  await assert.rejects(once.get(jobId), eclusa.ConnectionError);
  await assert.rejects(once.get(jobId, { signal: AbortSignal.timeout(200) }), { name: "TimeoutError" });
});

test("an error response that breaks off counts as lost", async (t) => {
  const between = await flaky(t, ["half"]);
  await assert.rejects(new Eclusa({ url: between.url }).get(randomUUID()), eclusa.NotFoundError);
  assert.equal(between.seen.length, 2);
});

test("retries are limited", async (t) => {
  const between = await flaky(t, Array(10).fill("busy"));
  const through = new Eclusa({ url: between.url, retries: 2 });
  await assert.rejects(through.enqueue("held", { request }), eclusa.UnavailableError);
  assert.equal(between.seen.length, 3);
  between.close();
  const gone = new Eclusa({ url: between.url, retries: 1 });
  await assert.rejects(gone.enqueue("held", { request }), eclusa.ConnectionError);
});

test("a batch has a result for each job", async () => {
  const answers = await client.enqueueBatch("work", [{ request }, { request: { path: "/../x" } }]);
  assert.equal((await client.wait(answers[0].jobId)).status, "completed");
  assert.equal(answers[1].type, "urn:eclusa:problem:invalid");
});

test("a wait that times out reports the job's state", async () => {
  const { jobId } = await client.enqueue("held", { request });
  const wait = client.wait(jobId, { timeout: 50 });
  await assert.rejects(wait, (error) => error instanceof eclusa.WaitTimeoutError && error.job.status === "queued");
  const why = await client.why(jobId);
  assert.deepEqual([why.status, why.reason], ["queued", "paused"]);
  assert.equal((await client.cancel(jobId)).status, "cancelled");
  await assert.rejects(client.cancel(jobId), eclusa.ConflictError);
});

test("events are followed to the end across a broken stream", async (t) => {
  const { jobId } = await client.enqueue("work", { request });
  await client.wait(jobId);
  const names = [];
  for await (const event of client.events(jobId)) names.push([event.id, event.event]);
  assert.deepEqual(names, [[1, "accepted"], [2, "started"], [3, "completed"]]);
  const between = await flaky(t, ["cut"]);
  const again = [];
  for await (const event of new Eclusa({ url: between.url }).events(jobId)) again.push(event);
  assert.deepEqual(again.map((event) => event.id), [1, 2, 3]);
  assert.equal(again.at(-1).job.status, "completed");
  assert.equal(between.seen[1]["last-event-id"], "1");
  for await (const event of client.events(jobId, { lastEventId: 3 })) assert.fail(JSON.stringify(event));
});

test("a dead letter is replayed", async () => {
  const { jobId } = await client.enqueue("broken", { request });
  assert.equal((await client.wait(jobId)).status, "failed");
  const letters = await client.deadLetters.list({ lane: "broken", code: "5xx" });
  assert.ok(letters.deadLetters.some((letter) => letter.jobId === jobId));
  assert.equal((await client.deadLetters.get(jobId)).lastFailureCode, "500");
  const accepted = await client.deadLetters.replay(jobId);
  assert.equal((await client.wait(accepted.jobId)).status, "failed");
  const edited = await client.deadLetters.replay(jobId, { request: { path: "/edited" } });
  assert.equal((await client.wait(edited.jobId)).request.path, "/edited");
  const all = await client.deadLetters.replayAll({ lane: "broken", tenant: "nobody" });
  assert.equal((await client.deadLetters.replayed(all.replayId)).replayId, all.replayId);
  await client.deadLetters.discard(jobId);
  await assert.rejects(client.deadLetters.get(jobId), eclusa.NotFoundError);
});

/** A job that has become a dead letter. */
async function failedJob() {
  const { jobId } = await client.enqueue("broken", { request });
  await client.wait(jobId);
  return jobId;
}

test("a replay whose response was lost is not repeated", async (t) => {
  const jobId = await failedJob();
  const between = await flaky(t, ["busy", "drop"]);
  const replay = new Eclusa({ url: between.url }).deadLetters.replay(jobId);
  await assert.rejects(replay, eclusa.ConnectionError);
  assert.equal(between.seen.length, 2);
});

test("a request that succeeded with its response lost is not an error", async (t) => {
  const between = await flaky(t, ["drop", undefined, undefined, "drop", undefined, undefined, "drop"]);
  const through = new Eclusa({ url: between.url });
  const { jobId } = await client.enqueue("held", { request });
  const cancelled = await through.cancel(jobId);
  assert.deepEqual([cancelled.jobId, cancelled.status], [jobId, "cancelled"]);
  const letter = await failedJob();
  assert.equal(await through.deadLetters.discard(letter), undefined);
  await assert.rejects(client.deadLetters.get(letter), eclusa.NotFoundError);
  await (await through.acquire("limited")).settle(200);
  assert.equal(between.seen.length, 8);
});

test("a conflict from another cause is an error", async (t) => {
  const between = await flaky(t, ["busy", undefined, "busy", undefined, "drop"]);
  const through = new Eclusa({ url: between.url });
  const { jobId } = await client.enqueue("held", { request });
  await client.cancel(jobId);
  await assert.rejects(through.cancel(jobId), eclusa.ConflictError);
  await assert.rejects(through.deadLetters.discard(randomUUID()), eclusa.NotFoundError);
  const ended = (await client.run("work", { request })).jobId;
  await assert.rejects(through.cancel(ended), eclusa.ConflictError);
});

test("calls are limited and settled", async () => {
  const lease = await client.acquire("limited");
  assert.ok(lease.remaining > 0);
  await assert.rejects(client.acquire("limited"), (error) => {
    assert.ok(error instanceof eclusa.QuotaExceededError);
    assert.deepEqual([error.problem.reason, error.retryAfter > 0], ["concurrency", true]);
    return true;
  });
  await lease.extend();
  await lease.settle(200);
  const next = await client.acquire("limited", { wait: "5s" });
  await next.settle("not_sent");
  await assert.rejects(next.settle(200), eclusa.NotFoundError);
});

test("invalid fields are reported in the error", async () => {
  await assert.rejects(client.enqueue("work", { request, priority: "urgent" }), (error) => {
    assert.ok(error instanceof eclusa.InvalidError);
    assert.match(error.problem.errors[0].problem, /high, normal, low/);
    return true;
  });
  await assert.rejects(client.get(randomUUID()), eclusa.NotFoundError);
  await assert.rejects(new Eclusa({ key: "wrong" }).get("x"), eclusa.UnauthorizedError);
  const lanes = await client.call("GET", "/v1/lanes");
  assert.ok(lanes.some((lane) => lane.name === "work"));
});

test("a response that is not the server's is an error of this client", async (t) => {
  let next;
  const server = await listen(t, (_, answer) => answer.writeHead(next.status, { "content-type": next.type }).end(next.body));
  const other = new Eclusa({ url: server.url, retries: 0 });
  for (const body of ['{"type":"x"}', '{"type":"x","title":"X","status":"?","detail":"x"}', "null", "[]", "<html>"]) {
    next = { status: 502, type: "application/json", body };
    await assert.rejects(other.get("x"), (error) => {
      assert.ok(error instanceof eclusa.ProblemError);
      assert.deepEqual([error.status, error.message], [502, `502 Bad Gateway: ${body}`]);
      return true;
    });
  }
  for (const type of ["text/html", "application/json"]) {
    next = { status: 200, type, body: "<html>" };
    await assert.rejects(other.get("x"), (error) => error instanceof eclusa.ConnectionError && /<html>/.test(error.message));
  }
});

test("any call may return text", async () => {
  assert.match(await client.call("GET", "/metrics"), /^# HELP eclusa_/m);
});

test("a callback is verified", { timeout: 30_000 }, async (t) => {
  let heard;
  const promise = new Promise((resolve) => (heard = resolve));
  const server = await listen(t, async (incoming, answer) => {
    const body = await bodyOf(incoming);
    answer.end();
    heard({ headers: incoming.headers, body });
  });
  const { jobId } = await client.enqueue("work", { request, callbackUrl: `${server.url}/done` });
  const { headers, body } = await promise;
  const job = verifyWebhook({ secret, headers, body });
  assert.deepEqual([job.jobId, job.status], [jobId, "completed"]);
  const refused = (changed) =>
    assert.throws(() => verifyWebhook({ secret, headers, body, ...changed }), eclusa.WebhookVerificationError);
  refused({ body: body.toString().replace("completed", "failed") });
  refused({ secret: "another-0123456789abcdef" });
  refused({ now: Date.now() + 301_000 });
  refused({ headers: { ...headers, "webhook-id": undefined } });
});

test("the example of Standard Webhooks is verified", () => {
  const headers = new Headers({
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v2,x v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  });
  const [body, key] = ['{"test": 2432232314}', "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"];
  assert.equal(verifyWebhook({ secret: key, headers, body, now: 1614265330_000 }).test, 2432232314);
});

test("a secret that the server would not accept is refused", () => {
  const body = "{}";
  for (const [wrong, key] of [
    ["", ""],
    [undefined, ""],
    ["short-012345678", "short-012345678"],
    ["whsec_", ""],
    ["whsec_?????????????", ""],
    ["whsec_c2VjcmV0LTAxMjM", "secret-0123"],
    ["whsec_é23456789012345", ""],
  ]) {
    const signature = createHmac("sha256", key).update(`m.1614265330.${body}`).digest("base64");
    const headers = { "webhook-id": "m", "webhook-timestamp": "1614265330", "webhook-signature": `v1,${signature}` };
    const verify = () => verifyWebhook({ secret: wrong, headers, body, now: 1614265330_000 });
    assert.throws(verify, (error) => error instanceof eclusa.WebhookVerificationError && /^the secret /.test(error.message));
  }
});

test("the server of the README survives requests that are not callbacks", { timeout: 30_000 }, async (t) => {
  const readme = await readFile(new URL("../README.md", import.meta.url), "utf8");
  const [, code] = /```ts\n([^`]*createServer[^]*?)```/.exec(readme);
  const changed = code
    .replace('"eclusa"', JSON.stringify(process.env.ECLUSA_CLIENT))
    .replace(".listen(8081)", '.listen(0, "127.0.0.1", function () { console.log(this.address().port); })');
  const server = spawn(process.execPath, ["--input-type=module", "--eval", changed], { stdio: ["ignore", "pipe", "ignore"] });
  t.after(() => server.kill());
  const [port] = await once(server.stdout, "data");
  const post = async (init) => (await fetch(`http://127.0.0.1:${Number(port)}`, { method: "POST", ...init })).status;
  assert.equal(await post({ body: "{}" }), 401);
  const sign = (body) => {
    const now = Math.floor(Date.now() / 1000);
    const signature = createHmac("sha256", secret).update(`m.${now}.${body}`).digest("base64");
    return { body, headers: { "webhook-id": "m", "webhook-timestamp": `${now}`, "webhook-signature": `v1,${signature}` } };
  };
  assert.equal(await post(sign("no JSON")), 400);
  assert.equal(await post(sign('{"jobId":"a","status":"completed"}')), 200);
});
