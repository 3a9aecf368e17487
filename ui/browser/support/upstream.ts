/** An upstream: a real HTTP server whose answers the test scripts. */

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Upstream {
  url: string;
  close(): Promise<void>;
}

type Script = (request: IncomingMessage, response: ServerResponse) => void;

export async function upstream(script: Script): Promise<Upstream> {
  const server = createServer((request, response) => {
    request.resume();
    script(request, response);
  });
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((closed) => {
        server.close(() => closed());
        server.closeAllConnections();
      }),
  };
}

/** Answers `/422` with that status, and everything else with 200. */
export const byPath: Script = (request, response) => {
  const status = Number(/^\/(\d{3})\b/.exec(request.url ?? '')?.[1] ?? 200);
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ done: status === 200 }));
};

/** Never answers: its calls stay in flight. */
export const silent: Script = () => {};
