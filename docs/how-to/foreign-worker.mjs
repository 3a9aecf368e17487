// Calls an API under limits that all workers share: node foreign-worker.mjs UPSTREAM URL [CALLS]
//
// ECLUSA_URL is the address of Eclusa; ECLUSA_KEY is a key of role producer, if Eclusa has keys.

const { ECLUSA_URL = "http://127.0.0.1:8080", ECLUSA_KEY = "" } = process.env;

/** Eclusa's answer. */
function ask(path, body) {
  const headers = { "content-type": "application/json", authorization: `Bearer ${ECLUSA_KEY}` };
  const signal = AbortSignal.timeout(70_000);
  return fetch(ECLUSA_URL + path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

/** Makes the call and returns what to report. */
async function makeCall(url) {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(8_000) });
    await answer.arrayBuffer();
    const retryAfter = answer.headers.get("retry-after") ?? undefined;
    return { status: answer.status, retryAfter };
  } catch (error) {
    return { status: error.name === "TimeoutError" ? "timeout" : "connection_error" };
  }
}

/** One call, if it is permitted within five seconds. */
async function call(upstream, url) {
  const answer = await ask(`/v1/limits/${upstream}/acquire`, { wait: "5s" });
  const permit = await answer.json();
  if (answer.status === 429) {
    return `not now (${permit.reason}), again in ${answer.headers.get("retry-after")} s`;
  }
  if (!answer.ok) throw new Error(permit.detail);
  const result = await makeCall(url);
  await ask(`/v1/limits/leases/${permit.leaseId}/settle`, result);
  return `${result.status}, ${permit.remaining} left`;
}

const [upstream, url, calls = "1"] = process.argv.slice(2);
for (let made = 0; made < Number(calls); made++) console.log(await call(upstream, url));
